# All compiler flags are on two interface targets.
add_library(kvfence_warnings INTERFACE)
add_library(kvfence_instrumentation INTERFACE)

# It links in a quarter of the time of GNU ld.
find_program(KVFENCE_LLD ld.lld)
if(KVFENCE_LLD)
  target_link_options(kvfence_instrumentation INTERFACE $<BUILD_INTERFACE:$<$<LINK_LANGUAGE:CXX>:-fuse-ld=lld>>)
endif()

target_compile_options(kvfence_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wnon-virtual-dtor;-Wold-style-cast>)
# GCC 12 warns falsely about `literal + std::string` when it optimizes (GCC bug 105651, fixed in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(kvfence_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
# Inherited members of a command are initialized without braces of their own, which Clang would require.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(kvfence_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-braces>)
endif()
# GCC collects its garbage from 128 MiB on, which most files exceed; from 512 MiB on it compiles a
# tenth faster.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(kvfence_warnings INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=524288>")
endif()
option(KVFENCE_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})
if(KVFENCE_WERROR)
  target_compile_options(kvfence_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

set(kvfence_is_fuzzed $<BOOL:$<TARGET_PROPERTY:KVFENCE_FUZZED>>)
if(KVFENCE_SANITIZE)
  set(product "-fsanitize=${KVFENCE_SANITIZE};-fno-sanitize-recover=all")
  set(harness "${product}")
  if(KVFENCE_SANITIZE MATCHES "address")
    # The address sanitizer finds what these find.
    set(left_out object-size null)
    if(NOT KVFENCE_SANITIZE_ALL)
      # They check each address and each object with virtual functions: up to a third of a source's compile time.
      list(APPEND left_out alignment vptr)
    endif()
    list(JOIN left_out "," left_out)
    list(APPEND product "-fno-sanitize=${left_out}")
    set(harness "${product}")
    # Most of the compiled code is harness: with addresses alone, each checked in a call, it compiles in a quarter less
    # time.
    if(KVFENCE_ENABLE_FUZZING AND NOT KVFENCE_SANITIZE_ALL)
      set(harness "-fsanitize=address;-fno-sanitize-recover=all;-fsanitize-address-outline-instrumentation")
    endif()
  endif()
  if(NOT KVFENCE_SANITIZE_HARNESS)
    set(harness "")
  endif()
  target_compile_options(kvfence_instrumentation INTERFACE
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,${kvfence_is_fuzzed}>:${product}>"
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:${kvfence_is_fuzzed}>>:${harness}>"
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  target_link_options(kvfence_instrumentation INTERFACE -fsanitize=${KVFENCE_SANITIZE})
endif()
if(KVFENCE_ENABLE_FUZZING)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "KVFENCE_ENABLE_FUZZING needs clang (libFuzzer), found "
                        "${CMAKE_CXX_COMPILER_ID}: configure with --preset fuzz")
  endif()
  # Only for the fuzzed code: coverage of the harness leads to no new input and takes time. Comparisons are not traced
  # either, because libFuzzer would put their values in inputs: a byte of an input is a choice, and words of the line
  # language come from a dictionary. Counts basic blocks, not edges: more of the planted bugs are found
  # (`fuzz/README.md`), because libFuzzer looks through all counters after each input.
  target_compile_options(kvfence_instrumentation INTERFACE
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,${kvfence_is_fuzzed}>:-fsanitize-coverage=bb,inline-8bit-counters,pc-table>")
  target_link_options(kvfence_instrumentation INTERFACE -fsanitize=fuzzer-no-link)
endif()

if(KVFENCE_COVERAGE)
  # For all code, because a program has one copy of a function in a header, from any of its sources. The counters are in
  # the file itself: the processes in which kvfence runs an implementation exit without writing one.
  target_compile_options(kvfence_instrumentation INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fprofile-instr-generate;-fcoverage-mapping;SHELL:-mllvm -runtime-counter-relocation>")
  target_link_options(kvfence_instrumentation INTERFACE -fprofile-instr-generate)
endif()

# For programs that run for hours: a campaign takes a tenth less time than with the C library's
# allocator. Sanitizers have their own, and debug builds use the C library's for valgrind. Without
# mimalloc nothing else changes.
add_library(kvfence_allocator INTERFACE)
set(kvfence_allocator_name "the C library's")
if(NOT KVFENCE_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  find_package(mimalloc 2.0 QUIET)
  if(mimalloc_FOUND)
    set(kvfence_allocator_name "mimalloc ${mimalloc_VERSION}")
    target_link_libraries(kvfence_allocator INTERFACE mimalloc)
    # No file uses a symbol of it, and a linker may drop unneeded libraries.
    target_link_options(kvfence_allocator INTERFACE LINKER:--undefined=mi_version)
  endif()
endif()
target_compile_definitions(kvfence_allocator INTERFACE KVFENCE_ALLOCATOR="${kvfence_allocator_name}")
