#!/usr/bin/env bash
# Checks that every C++ file has the layout of .clang-format.
#
#   ci/check_format.sh [--fix]    --fix: formats them
#
# Exit codes: 0 all have; 1 one has not; 77 there is no clang-format of version 14, whose layout counts.
. "$(dirname "$0")/lib.sh"

case "${1:-}" in
  '' | --fix) ;;
  *) die "unknown argument '$1': ci/check_format.sh [--fix]" ;;
esac

version=$(clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\..*/\1/p' || true)
if [ "$version" != 14 ]; then
  say "format not checked: it needs clang-format 14, found ${version:-none}"
  exit 77
fi

mapfile -t files < <(python3 ci/tree.py | grep -E '\.(h|cpp|cu|cuh)$')
[ "${#files[@]}" -gt 0 ] || die "no C++ file found"
if [ "${1:-}" = --fix ]; then
  clang-format -i "${files[@]}"
else
  clang-format --dry-run -Werror "${files[@]}" || die "ci/check_format.sh --fix fixes it"
fi
say "format: ${#files[@]} files"
