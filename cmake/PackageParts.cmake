# CPack runs this when it has made a package: the list of its parts beside it (package_parts.py), and beside the Debian package
# ringmaster python3-ringmaster, which goes the same way.
if(CPACK_GENERATOR STREQUAL "DEB")
  foreach(package ${CPACK_PACKAGE_FILES})
    execute_process(COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/package_parts.py ${package} ${CPACK_PACKAGE_DIRECTORY}
                    COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  if(CPACK_PACKAGE_NAME STREQUAL "ringmaster")
    execute_process(COMMAND ${CPACK_RINGMASTER_PYTHON} -G DEB -B ${CPACK_PACKAGE_DIRECTORY} COMMAND_ERROR_IS_FATAL ANY)
  endif()
endif()
