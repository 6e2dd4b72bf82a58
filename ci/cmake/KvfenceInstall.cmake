# What `cmake --install` installs. Libraries and headers are the package that find_package(kvfence) finds; headers keep
# their paths, so that "contract/pool/block_pool.h" is included as in the repository.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvfence)
set(header_dir ${CMAKE_INSTALL_INCLUDEDIR}/kvfence)
set(layers contract_pool contract reference_pool reference file_tier optimized properties_pool properties check outside)
list(TRANSFORM layers PREPEND kvfence_ OUTPUT_VARIABLE libraries)
foreach(layer IN LISTS layers ITEMS instrumentation)
  set_target_properties(kvfence_${layer} PROPERTIES EXPORT_NAME ${layer})
endforeach()
install(TARGETS ${libraries} kvfence_instrumentation EXPORT kvfence
  FILE_SET HEADERS DESTINATION ${header_dir}
  FILE_SET headers_with_source DESTINATION ${header_dir})
install(TARGETS kvfence EXPORT kvfence)
install(EXPORT kvfence NAMESPACE kvfence:: FILE kvfenceTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kvfenceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/kvfenceConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvfenceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvfenceConfig.cmake ${PROJECT_BINARY_DIR}/kvfenceConfigVersion.cmake
  DESTINATION ${package_dir})

set(pages ${PROJECT_BINARY_DIR}/pages)
install(FILES ${pages}/kvfence.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${pages}/kvfence DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${pages}/_kvfence DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${pages}/kvfence.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# Documents have the places that they have in the repository, so that their links hold.
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
foreach(document IN ITEMS contract/line_language.md scenarios/writing_scenarios.md scenarios/audit/README.md)
  get_filename_component(folder ${document} DIRECTORY)
  install(FILES ${document} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
set(adapters README.md targets.md differences.md minimal_pool.py block_pool_target.py line_language.py session.py wire.py)
list(TRANSFORM adapters PREPEND scenarios/adapters/)
install(FILES ${adapters} DESTINATION ${CMAKE_INSTALL_DOCDIR}/scenarios/adapters)
install(DIRECTORY scenarios/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/scenarios FILES_MATCHING
  PATTERN "*.cpp" PATTERN "*.h" PATTERN "CMakeLists.txt" PATTERN "README.md" PATTERN "my_indexer.py")
