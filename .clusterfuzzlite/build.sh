#!/bin/bash -eu
# Builds what ClusterFuzzLite runs: a program and a corpus for each part, in $OUT. ClusterFuzzLite sets the compiler, its
# flags and the engine in the environment.
cmake -S . -B "$WORK/kvfence" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DKVFENCE_BUILD_TESTS=OFF \
  -DKVFENCE_BUILD_BENCHMARKS=OFF -DKVFENCE_UNITY=ON -DKVFENCE_ENABLE_FUZZING=ON "-DKVFENCE_FUZZING_ENGINE=$LIB_FUZZING_ENGINE" \
  '-DCMAKE_BUILD_RPATH=$ORIGIN'
cmake --build "$WORK/kvfence" --target fuzz_lockstep fuzz_line_language fuzz_kv_events
for name in line_language kv_events; do
  cp "$WORK/kvfence/fuzz/fuzz_$name" "$OUT/$name"
  (cd "fuzz/corpus/$name" && zip -q -r "$OUT/${name}_seed_corpus.zip" .)
done
fuzz/make_dictionary > "$OUT/line_language.dict"
# The name of the program selects the part.
while read -r part _; do
  case $part in '' | '#') continue ;; esac
  cp "$WORK/kvfence/fuzz/fuzz_lockstep" "$OUT/${part}_lockstep"
  (cd "fuzz/corpus/${part}_lockstep" && zip -q -r "$OUT/${part}_lockstep_seed_corpus.zip" .)
done < fuzz/targets.txt
# The libraries of the program are copied with it.
ldd "$OUT/kv_events" | awk '$3 ~ /libcrypto|libzmq/ {print $3}' | xargs -r cp -t "$OUT"
