# cmake -DKVFENCE=<program> -DCASE=<scenario> -DPLANTED_BUG=<name> -P expect_disagreement.cmake
# Passes if the scenario fails with that bug by exit code 1. A crash, which WILL_FAIL would accept, is another.
execute_process(COMMAND ${KVFENCE} run --no-shrink --quiet ${CASE} --planted-bug ${PLANTED_BUG}
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("${output}")
if(NOT result STREQUAL 1)
  message(FATAL_ERROR "ended with '${result}', expected 1")
endif()
