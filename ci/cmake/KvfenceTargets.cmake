# One way to declare each kind of target. A room is a folder of one component; a new file in it needs no line here.

# kvfence_precompile(<target> [TEST] [HASTENED | UNOPTIMIZED])
# Under sanitizers the standard library's headers, and with TEST GoogleTest's, are compiled once and
# not once a file. In a release build so are those of tests alone: it shows whether each other file
# includes what it uses, a debug build whether tests do.
function(kvfence_precompile target)
  cmake_parse_arguments(ARG "TEST;HASTENED;UNOPTIMIZED" "" "" ${ARGN})
  if(NOT KVFENCE_SANITIZE AND NOT (ARG_TEST AND CMAKE_BUILD_TYPE STREQUAL "Release"))
    return()
  endif()
  set(headers kvfence_precompiled)
  if(ARG_TEST)
    string(APPEND headers _test)
  endif()
  if(ARG_HASTENED)
    string(APPEND headers _hastened)
  elseif(ARG_UNOPTIMIZED)
    string(APPEND headers _unoptimized)
  endif()
  if(NOT TARGET ${headers})
    set(source ${PROJECT_BINARY_DIR}/${headers}.cpp)
    file(GENERATE OUTPUT ${source} CONTENT "")
    add_library(${headers} OBJECT ${source})
    target_link_libraries(${headers} PRIVATE
      kvfence_warnings kvfence_instrumentation $<$<BOOL:${ARG_TEST}>:GTest::gtest>)
    if(ARG_HASTENED)
      kvfence_hasten_build(${headers})
    elseif(ARG_UNOPTIMIZED)
      kvfence_hasten_build(${headers} UNOPTIMIZED)
    elseif(ARG_TEST)
      kvfence_not_fuzzed(${headers})
    endif()
    target_compile_options(${headers} PRIVATE
      "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
    target_precompile_headers(${headers} PRIVATE
      <algorithm> <array> <cstddef> <cstdint> <deque> <functional> <map> <memory> <optional> <ostream> <random> <set>
      <span> <sstream> <string> <string_view> <tuple> <unordered_map> <utility> <variant> <vector>
      $<$<BOOL:${ARG_TEST}>:<gtest/gtest.h$<ANGLE-R>>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  # GCC 12 warns falsely about lists of strings, within a header that it otherwise knows is the system's.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endfunction()

# kvfence_not_fuzzed(<target>)
# For code whose coverage tells a fuzzer nothing: tests, reports.
function(kvfence_not_fuzzed target)
  set_target_properties(${target} PROPERTIES KVFENCE_NOT_FUZZED ON)
endfunction()

# kvfence_hasten_build(<target> [SANITIZED_ONLY | RELEASE_ONLY] [UNOPTIMIZED])
# For code that takes longer to optimize than to run: under sanitizers without optimization, which
# costs a third of the time, else with little, or with none. Debug builds are as they are.
function(kvfence_hasten_build target)
  cmake_parse_arguments(ARG "SANITIZED_ONLY;RELEASE_ONLY;UNOPTIMIZED" "" "" ${ARGN})
  if(KVFENCE_SANITIZE)
    if(NOT ARG_RELEASE_ONLY)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
      kvfence_not_fuzzed(${target})
    endif()
  elseif(NOT ARG_SANITIZED_ONLY)
    set(level $<IF:$<BOOL:${ARG_UNOPTIMIZED}>,-O0,-O1>)
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:${level}>)
  endif()
endfunction()

# kvfence_add_library(<layer> [SELDOM_RUN] HEADERS ... [SOURCES ...] [LINKS ...])
# The library kvfence_<layer>, alias kvfence::<layer>; include root is the repository. SELDOM_RUN:
# not optimized under sanitizers.
function(kvfence_add_library layer)
  cmake_parse_arguments(ARG "SELDOM_RUN" "" "SOURCES;HEADERS;LINKS" ${ARGN})
  set(target kvfence_${layer})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE kvfence_warnings)
    if(ARG_SELDOM_RUN)
      kvfence_hasten_build(${target} SANITIZED_ONLY)
      kvfence_precompile(${target} HASTENED)
    else()
      kvfence_precompile(${target})
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(kvfence::${layer} ALIAS ${target})
  # A header with a source of its name is included there first, so that it is known to stand alone;
  # the others are verified.
  set(headers_with_source "")
  foreach(header IN LISTS ARG_HEADERS)
    string(REGEX REPLACE "\\.h$" ".cpp" source ${header})
    if(source IN_LIST ARG_SOURCES)
      list(APPEND headers_with_source ${header})
    endif()
  endforeach()
  list(REMOVE_ITEM ARG_HEADERS ${headers_with_source})
  target_sources(${target} ${scope}
    FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS}
    FILE_SET headers_with_source TYPE HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers_with_source})
  target_link_libraries(${target} ${scope} kvfence_instrumentation ${ARG_LINKS})
  target_compile_features(${target} ${scope} cxx_std_20)
  set_target_properties(${target} PROPERTIES
    VERIFY_INTERFACE_HEADER_SETS ON INTERFACE_HEADER_SETS_TO_VERIFY HEADERS)
endfunction()

# kvfence_checks_of(<class> <variable>): the header with the checks of that target.
function(kvfence_checks_of class variable)
  set(rooms BlockPool pool KVCache kv_cache Scheduler scheduler Eviction eviction Offload offload
    Tiering tiering Worker worker Engine engine Connector connectors/offloading
    SimpleOffload connectors/simple SynchronousConnector connectors/synchronous
    MultiConnector connectors/multi Disaggregated connectors/disaggregated)
  string(REGEX REPLACE "Target$" "" stem ${class})
  list(FIND rooms ${stem} at)
  math(EXPR at "${at} + 1")
  list(GET rooms ${at} room)
  set(${variable} properties/${room}/checks.h PARENT_SCOPE)
endfunction()

# kvfence_compile_once_a_target(<library> <source> [SELDOM_RUN] LINKS ...)
# Adds the source to the library once for each class that contract/core/all_targets.h lists, which it
# finds in KVFENCE_TARGET; KVFENCE_TARGET_CHECKS is the header with its checks. SELDOM_RUN: not worth
# optimizing, and not at all under sanitizers.
function(kvfence_compile_once_a_target library source)
  cmake_parse_arguments(ARG "SELDOM_RUN" "" "LINKS" ${ARGN})
  set(list ${PROJECT_SOURCE_DIR}/contract/core/all_targets.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(READ ${list} text)
  string(REGEX MATCH "using AllTargets =[ \n]*TargetList<([^>]+)>" found "${text}")
  string(REGEX MATCHALL "[A-Za-z]+" classes "${CMAKE_MATCH_1}")
  if(NOT classes)
    message(FATAL_ERROR "${list}: expected 'using AllTargets = TargetList<...>'")
  endif()
  get_filename_component(stem ${source} NAME_WE)
  foreach(class IN LISTS classes)
    set(object ${library}_${stem}_${class})
    add_library(${object} OBJECT ${source})
    kvfence_checks_of(${class} checks)
    target_compile_definitions(${object} PRIVATE
      KVFENCE_TARGET=${class} KVFENCE_TARGET_CHECKS="${checks}")
    target_link_libraries(${object} PRIVATE kvfence_warnings ${ARG_LINKS})
    if(ARG_SELDOM_RUN)
      kvfence_hasten_build(${object})
      kvfence_precompile(${object} HASTENED)
    else()
      kvfence_precompile(${object})
    endif()
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
endfunction()

# kvfence_sources(<variable> <room>...)
# The sources of these rooms, without tests and programs; <variable>_headers receives the headers.
function(kvfence_sources variable)
  set(sources "")
  set(headers "")
  foreach(room IN LISTS ARGN)
    file(GLOB found RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ${room}/*.cpp)
    list(FILTER found EXCLUDE REGEX "_(test|canary|main)\\.cpp$")
    list(APPEND sources ${found})
    file(GLOB found RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ${room}/*.h)
    list(APPEND headers ${found})
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
  set(${variable}_headers ${headers} PARENT_SCOPE)
endfunction()

# kvfence_add_test(<name> LABEL <unit|property|scenario|gpu> SOURCES ... LINKS ... [TIMEOUT seconds])
# A GoogleTest program and its ctest entry. Tests take longer to optimize than to run.
function(kvfence_add_test name)
  if(NOT KVFENCE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINKS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE
    kvfence_warnings kvfence_instrumentation ${ARG_LINKS} GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABEL STREQUAL "unit")
    kvfence_hasten_build(${name} UNOPTIMIZED)
    kvfence_precompile(${name} TEST UNOPTIMIZED)
  else()
    kvfence_hasten_build(${name})
    kvfence_precompile(${name} TEST HASTENED)
  endif()
endfunction()

# kvfence_add_room_tests(<layer> <room> [LABEL <label>] LINKS ... [COUNTED_WITH ...])
# All tests of a room as the program <layer>_<room>_test. What counts operations, allocations and
# planted bugs is <layer>_<room>_counted_test, with the sources COUNTED_WITH besides: it has nothing to
# do with memory errors and stands in the optimized build alone.
function(kvfence_add_room_tests layer room)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "LINKS;COUNTED_WITH;WITHOUT" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  file(GLOB sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ${room}/*_test.cpp)
  list(REMOVE_ITEM sources ${ARG_WITHOUT} "")
  set(counted ${sources})
  list(FILTER counted INCLUDE REGEX "(planted_bugs|operation_count|no_allocation)_test\\.cpp$")
  if(counted)
    list(REMOVE_ITEM sources ${counted})
  endif()
  string(REPLACE "/" "_" name ${layer}_${room})
  if(sources)
    kvfence_add_test(${name}_test LABEL ${ARG_LABEL} SOURCES ${sources} LINKS ${ARG_LINKS} TIMEOUT ${ARG_TIMEOUT})
  endif()
  if(counted AND NOT KVFENCE_SANITIZE)
    kvfence_add_test(${name}_counted_test LABEL property
      SOURCES ${counted} ${ARG_COUNTED_WITH} LINKS ${ARG_LINKS} TIMEOUT ${ARG_TIMEOUT})
  endif()
endfunction()

# kvfence_not_sanitized(<name> FILTER)
# Cases of a test that the sanitized build leaves out, as a GoogleTest filter: they take minutes there
# and run what others of the test run, only more of it.
function(kvfence_not_sanitized name filter)
  if(KVFENCE_SANITIZE AND TARGET ${name})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=-${filter}")
  endif()
endfunction()

# kvfence_add_benchmark(<name> SOURCES ... LINKS ...)
function(kvfence_add_benchmark name)
  if(NOT KVFENCE_BUILD_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  find_package(benchmark REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kvfence_warnings ${ARG_LINKS} benchmark::benchmark)
endfunction()

# kvfence_add_fuzz_target(<name> [FINDS_IN <corpus>] SOURCES ... [DEFINITIONS ...] LINKS ...)
# With KVFENCE_ENABLE_FUZZING the libFuzzer program fuzz_<name>. With the tests the program
# replay_<name>, and a test that runs it over corpus/<name>, or, with FINDS_IN, that expects it to
# abort with a report on another target's corpus. Both are linked of the same objects.
function(kvfence_add_fuzz_target name)
  if(NOT KVFENCE_ENABLE_FUZZING AND NOT KVFENCE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "FINDS_IN" "SOURCES;DEFINITIONS;LINKS" ${ARGN})
  set(objects fuzz_objects_of_${name})
  add_library(${objects} OBJECT ${ARG_SOURCES})
  target_compile_definitions(${objects} PRIVATE ${ARG_DEFINITIONS})
  target_link_libraries(${objects} PRIVATE kvfence_warnings ${ARG_LINKS})
  kvfence_hasten_build(${objects} RELEASE_ONLY)
  if(KVFENCE_ENABLE_FUZZING)
    add_executable(fuzz_${name} $<TARGET_OBJECTS:${objects}>)
    target_link_libraries(fuzz_${name} PRIVATE ${ARG_LINKS})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(fuzz_${name} PROPERTIES LINKER_LANGUAGE CXX)
  endif()
  if(NOT KVFENCE_BUILD_TESTS)
    return()
  endif()
  add_executable(replay_${name} $<TARGET_OBJECTS:${objects}> $<TARGET_OBJECTS:fuzz_replay_main>)
  target_link_libraries(replay_${name} PRIVATE ${ARG_LINKS})
  set_target_properties(replay_${name} PROPERTIES LINKER_LANGUAGE CXX)
  if(ARG_FINDS_IN)
    add_test(NAME fuzz_${name}
             COMMAND ${CMAKE_COMMAND} -DREPLAY=$<TARGET_FILE:replay_${name}>
                     -DCORPUS=${CMAKE_CURRENT_SOURCE_DIR}/corpus/${ARG_FINDS_IN}
                     -P ${CMAKE_CURRENT_SOURCE_DIR}/expect_finding.cmake)
  else()
    add_test(NAME fuzz_${name}
             COMMAND replay_${name} ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
  endif()
  set_tests_properties(fuzz_${name} PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()
