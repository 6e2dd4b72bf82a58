#!/usr/bin/env bash
# Records all traces again from the real vLLM: scenarios/traces/refresh.sh [KVFENCE]
# KVFENCE is the program, build/release/scenarios/kvfence by default; needs both releases
# (scenarios/adapters/fetch_vllm.py). The two are recorded side by side. Exit codes: those of kvfence.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kvfence=${1:-build/release/scenarios/kvfence}

# record OUT TARGET SEED EPISODES COMMANDS [OPTION ...] [--config] [KEY=VALUE ...]: of one release
record() {
  local out=scenarios/traces/$profile/$1 target=$2 seed=$3 episodes=$4 commands=$5
  shift 5
  "$kvfence" record --target "$target" --quiet --seed "$seed" --episodes "$episodes" --episode-commands "$commands" \
    --out "$out" --sut "python3 -B scenarios/adapters/vllm.py --release $release" "$@"
}

# As text, for people: one short episode.
text() {
  local name=$1 target=$2
  shift 2
  record "$name.kvs" "$target" 1 1 40 --config "profile=$profile" "$@"
}

# As digests. tight: few blocks, drawn, the state of every step. long: the same, but long lives.
# wide: more blocks than are used at once, the state of every 16th step.
digests() {
  local name=$1-$2-seed$4 target=$3 seed=$4 episodes=$5 commands=$6 sparse=()
  [ "$2" = wide ] && sparse=(--sparse-state)
  shift 6
  record "$name.kvs.gz" "$target" "$seed" "$episodes" "$commands" --digests 16 "${sparse[@]}" \
    --config "profile=$profile" "$@"
}

# universes NAME TARGET WIDE: 115,000 commands
universes() {
  local name=$1 target=$2 wide=$3 seed
  for seed in 101 102 103 104; do digests "$name" tight "$target" "$seed" 100 200; done
  digests "$name" long "$target" 105 5 3000
  for seed in 106 107; do digests "$name" wide "$target" "$seed" 10 1000 "$wide"; done
}

# assembly NAME: 20,000 commands of target engine
assembly() {
  local seed
  for seed in 101 102 103; do digests "engine.$1" tight engine "$seed" 25 200 "assembly=$1"; done
  digests "engine.$1" wide engine 104 5 1000 "assembly=$1" num_gpu_blocks=1000
}

release_of() {
  release=$1 profile=$2
  rm -f "scenarios/traces/$profile"/*
  text block_pool block_pool
  text kv_cache kv_cache
  text eviction eviction policy=arc
  text offload offload policy=arc
  universes block_pool block_pool num_gpu_blocks=1500
  universes kv_cache kv_cache num_gpu_blocks=1500
  universes eviction eviction capacity=1000
  universes offload offload capacity=1000
  if [ "$profile" = v0.23 ]; then
    text tiering tiering
    universes tiering tiering capacity=1000
  fi
  for name in scheduler offloading simple synchronous prefill_decode multi; do
    text "engine.$name" engine "assembly=$name"
    assembly "$name"
  done
  # Kinds of attention that are rarely drawn; a filter that forgets; other settings that are rarely drawn.
  digests kv_cache.cross tight kv_cache 111 20 200 enable_caching=false \
    "groups=[(full block_size=4) (cross block_size=4)]"
  digests offload.filter tight offload 111 20 200 store_threshold=2 max_tracker_size=8
  digests engine.scheduler.recompute tight engine 111 10 200 assembly=scheduler "connectors=[(scripted)]" \
    kv_load_failure_policy=recompute
  digests engine.multi.scripted tight engine 111 10 200 assembly=multi ranks=2 \
    "connectors=[(multi children=[(scripted shutdown_fails=true) (scripted class=b handshake=true) (scripted)])]"
  if [ "$profile" = v0.23 ]; then
    digests engine.offloading.tiers tight engine 111 25 200 assembly=offloading offloading.num_tiers=2 \
      offloading.transfers_may_fail=false offloading.spec_name=TieringOffloadingSpec
    digests engine.prefill_decode.windows tight engine 111 25 200 assembly=prefill_decode nixl.deadline=0 \
      nixl.transport_may_fail=false hash_block_size=4 \
      "groups=[(full block_size=4) (sliding block_size=4 window=6) (sliding block_size=4 window=4)]"
  else
    digests kv_cache.sink tight kv_cache 111 20 200 hash_block_size=4 "groups=[(sink block_size=4 sink_len=8)]"
  fi
}

mkdir -p scenarios/traces/v0.19 scenarios/traces/v0.23
release_of 0.19.0 v0.19 &
first=$!
release_of 0.23.0 v0.23
wait "$first"
