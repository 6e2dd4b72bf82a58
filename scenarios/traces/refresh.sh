#!/usr/bin/env bash
# Records all traces anew from the real vLLM: scenarios/traces/refresh.sh [KVFENCE]
# KVFENCE is the program, build/release/scenarios/kvfence by default; needs both releases
# (scenarios/adapters/fetch_vllm.py). Exit codes: those of kvfence.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kvfence=${1:-build/release/scenarios/kvfence}

# record RELEASE PROFILE SEED EPISODES COMMANDS [KEY=VALUE ...]
record() {
  local release=$1 profile=$2 seed=$3 episodes=$4 commands=$5
  shift 5
  "$kvfence" record --target block_pool --quiet --seed "$seed" --episodes "$episodes" \
    --episode-commands "$commands" --config profile="$profile" "$@" --out "scenarios/traces/$profile" \
    --sut "python3 -B scenarios/adapters/vllm.py --release $release"
}

# Many small pools; long lives; pools with more blocks.
for pinned in "0.19.0 v0.19" "0.23.0 v0.23"; do
  read -r release profile <<<"$pinned"
  rm -f "scenarios/traces/$profile"/*.kvs
  record "$release" "$profile" 1 16 200
  record "$release" "$profile" 2 1 1500
  record "$release" "$profile" 3 2 200 num_gpu_blocks=64
done
