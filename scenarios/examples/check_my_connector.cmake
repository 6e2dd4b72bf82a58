# Builds scenarios/examples/my_connector by its own CMakeLists.txt, twice: kvfence has to agree with
# its libraries, and to disagree (exit code 1) once the mistake is built in. What a library does not
# have is bad input (exit code 2).
#   cmake -DKVFENCE=... -DONE_GROUP_LIBRARY=... -DFOLDER=... -DCXX=... -DGENERATOR=... -P check_my_connector.cmake
function(run_expecting expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(output "${output}" PARENT_SCOPE)
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
  set(check ${KVFENCE} check --target engine --commands 20000 --quiet --no-shrink --out ${build})
  set(my_connector --connector-library ${build}/my_connector.so --config)
  set(my_simple_connector --connector-library ${build}/my_simple_connector.so --config)
  run_expecting(${exit_code} ${check} ${my_connector} assembly=offloading)
  run_expecting(${exit_code} ${check} ${my_connector} assembly=multi)
  run_expecting(${exit_code} ${check} ${my_simple_connector} assembly=simple)
endforeach()

function(refuse_expecting text)
  run_expecting(2 ${ARGN})
  if(NOT output MATCHES "${text}")
    message(FATAL_ERROR "expected ${text}, found ${output}")
  endif()
endfunction()
refuse_expecting("my_simple_connector.so: found a connector of kind simple, expected one of kind files for assembly synchronous"
  ${check} ${my_simple_connector} assembly=synchronous)
refuse_expecting("my_connector.so: found a connector of kind offloading, expected none for assembly scheduler"
  ${check} ${my_connector} assembly=scheduler)
foreach(scenario IN ITEMS simple/bugs/stale_window_id_stored multi/profiles/several_groups_v0_23)
  refuse_expecting("found a connector with supports_hma\\(\\) false, expected true"
    ${KVFENCE} run ${CMAKE_CURRENT_LIST_DIR}/../cases/engine/${scenario}.kvs --no-shrink --quiet
    --connector-library ${ONE_GROUP_LIBRARY})
endforeach()
