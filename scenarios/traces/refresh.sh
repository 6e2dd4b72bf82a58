#!/usr/bin/env bash
# Records all traces anew from the real vLLM: scenarios/traces/refresh.sh [KVFENCE]
# KVFENCE is the program, build/release/scenarios/kvfence by default; needs both releases
# (scenarios/adapters/fetch_vllm.py). Exit codes: those of kvfence.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kvfence=${1:-build/release/scenarios/kvfence}

# record RELEASE PROFILE TARGET SEED EPISODES COMMANDS [KEY=VALUE ...]
record() {
  local release=$1 profile=$2 target=$3 seed=$4 episodes=$5 commands=$6
  shift 6
  "$kvfence" record --target "$target" --quiet --seed "$seed" --episodes "$episodes" \
    --episode-commands "$commands" --config profile="$profile" "$@" --out "scenarios/traces/$profile" \
    --sut "python3 -B scenarios/adapters/vllm.py --release $release"
}

# Many small pools and caches; long lives; more blocks; kinds of attention that are seldom drawn; connectors; a filter.
for pinned in "0.19.0 v0.19" "0.23.0 v0.23"; do
  read -r release profile <<<"$pinned"
  rm -f "scenarios/traces/$profile"/*.kvs
  record "$release" "$profile" block_pool 1 16 200
  record "$release" "$profile" block_pool 2 1 1500
  record "$release" "$profile" block_pool 3 2 200 num_gpu_blocks=64
  record "$release" "$profile" kv_cache 1 16 120
  record "$release" "$profile" kv_cache 2 8 120
  record "$release" "$profile" kv_cache 3 1 600
  record "$release" "$profile" kv_cache 4 2 150 num_gpu_blocks=64
  record "$release" "$profile" kv_cache 5 2 120 enable_caching=false \
    "groups=[(full block_size=4) (cross block_size=4)]"
  record "$release" "$profile" engine 1 9 28 assembly=scheduler
  record "$release" "$profile" engine 2 4 32 assembly=scheduler "connectors=[(scripted)]" kv_load_failure_policy=recompute
  record "$release" "$profile" eviction 1 12 120
  record "$release" "$profile" eviction 2 1 800 policy=arc
  record "$release" "$profile" eviction 3 2 200 capacity=32
  record "$release" "$profile" offload 1 12 120
  record "$release" "$profile" offload 2 1 800 policy=arc
  record "$release" "$profile" offload 3 2 200 capacity=32
  record "$release" "$profile" offload 4 3 150 store_threshold=2 max_tracker_size=8
  record "$release" "$profile" engine 9 4 60 assembly=offloading offloading.transfers_may_fail=false \
    "offloading.file_tiers=[]"
  record "$release" "$profile" engine 1 4 40 assembly=multi \
    "connectors=[(multi children=[(scripted cross_layers=true) (scripted class=b cross_layers=true handshake=true)])]"
  record "$release" "$profile" engine 2 4 40 assembly=multi \
    "connectors=[(multi children=[(scripted shutdown_fails=true) (scripted class=b handshake=true) (scripted)])]" ranks=2
  record "$release" "$profile" engine 9 4 60 assembly=prefill_decode
  is_v0_23=$([ "$profile" = v0.23 ] && echo true || echo false)
  record "$release" "$profile" engine 21 4 200 assembly=simple \
    "simple.simple_offload_pins_hits=$is_v0_23" "simple.simple_offload_skips_stores_under_way=$is_v0_23" \
    "simple.simple_offload_skips_unhashed_blocks=$is_v0_23" "simple.simple_offload_aligns_stores=$is_v0_23"
  record "$release" "$profile" engine 1 4 60 assembly=synchronous example.num_layers=1
  record "$release" "$profile" engine 2 2 60 assembly=synchronous "decode_bench.decode_bench_hma=$is_v0_23"
done
record 0.23.0 v0.23 tiering 1 8 120 "file_tiers=[]"
record 0.23.0 v0.23 tiering 2 1 600 "file_tiers=[]"
record 0.23.0 v0.23 engine 16 3 120 assembly=offloading offloading.transfers_may_fail=false \
  offloading.spec_name=TieringOffloadingSpec offloading.num_tiers=2 "offloading.file_tiers=[]"
record 0.19.0 v0.19 kv_cache 6 2 120 hash_block_size=4 "groups=[(sink block_size=4 sink_len=8)]"
