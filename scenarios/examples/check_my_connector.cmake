# Builds scenarios/examples/my_connector by its own CMakeLists.txt, twice: kvfence has to agree with
# it, and to disagree (exit code 1) once the mistake is built in.
#   cmake -DKVFENCE=... -DFOLDER=... -DCXX=... -DGENERATOR=... -P check_my_connector.cmake
function(run_expecting expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL expected)
    message(FATAL_ERROR "expected exit code ${expected}, found ${result}: ${ARGN}\n${output}")
  endif()
endfunction()

foreach(mistake IN ITEMS OFF ON)
  set(build ${FOLDER}/mistake_${mistake})
  run_expecting(0 ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/my_connector -B ${build} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX} -DMY_CONNECTOR_FORGETS_FLUSHES=${mistake})
  run_expecting(0 ${CMAKE_COMMAND} --build ${build})
  set(exit_code 0)
  if(mistake)
    set(exit_code 1)
  endif()
  run_expecting(${exit_code} ${KVFENCE} check --target engine --config assembly=offloading --commands 20000 --quiet --no-shrink
    --out ${build} --connector-library ${build}/my_connector.so)
endforeach()
