# cmake -DREPLAY=<program> -DCORPUS=<folder> -P expect_finding.cmake
# Passes if the replay aborts with a scenario on stderr.
execute_process(COMMAND ${REPLAY} ${CORPUS}
                RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE report)
message("ended with '${result}'\n${report}")
if(result MATCHES "^[0-9]+$")
  message(FATAL_ERROR "expected an abort")
endif()
if(NOT report MATCHES "# divergence at command [0-9]+, seen by .*\ntarget [a-z_]+\nconfig .*\n# end of the scenario")
  message(FATAL_ERROR "expected a divergence and its scenario on stderr")
endif()
