# What `cmake --install` puts where. Two components: `program` goes below the prefix, `configuration`
# below the prefix of a plain installation and below / in a package. The units name /usr/bin and
# /etc: a prefix other than /usr needs a drop-in for ExecStart= and EnvironmentFile=.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME program)
# Files of installed folders have these modes, whatever the source tree's are.
set(readable FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# Before anything is copied. Completion is made below, the changelog in Package.cmake.
set(completion ${CMAKE_BINARY_DIR}/deploy/completion)
set(changelog ${CMAKE_BINARY_DIR}/deploy/changelog.gz)
set(built completion=${completion}/ringctl changelog=${changelog})
foreach(target ringmaster ringworker ringctl ringmaster_pjrt_host ringmaster_cuda)
  if(TARGET ${target})
    list(APPEND built ${target}=$<TARGET_FILE:${target}>)
  endif()
endforeach()
install(CODE "set(built \"${built}\")\nset(build \"${CMAKE_BINARY_DIR}\")")
install(SCRIPT cmake/CheckBuilt.cmake)

install(TARGETS ringmaster ringworker ringctl RUNTIME DESTINATION bin)
# Started by ringworker alone.
install(TARGETS ringmaster_pjrt_host RUNTIME DESTINATION lib/ringmaster)
if(TARGET ringmaster_cuda)
  install(TARGETS ringmaster_cuda LIBRARY DESTINATION lib/ringmaster)
endif()
# What ringworker's Python children import, whatever else their interpreter has; it looks beside its own program, where a build
# folder has the source itself.
install(DIRECTORY python/ringmaster DESTINATION lib/ringmaster/python ${readable} FILES_MATCHING PATTERN "*.py"
        PATTERN __pycache__ EXCLUDE)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib/ringmaster)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/python ${CMAKE_BINARY_DIR}/lib/ringmaster/python SYMBOLIC)
install(FILES deploy/systemd/ringmaster.service deploy/systemd/ringworker.service
        DESTINATION lib/systemd/system)
install(FILES deploy/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME ringmaster.conf)
install(FILES deploy/systemd/ringmaster.env DESTINATION etc/ringmaster COMPONENT configuration)
# A token may stand in it.
install(FILES deploy/systemd/ringworker.env DESTINATION etc/ringmaster COMPONENT configuration
        PERMISSIONS OWNER_READ OWNER_WRITE)

# docs keeps its place beside the pages that link into it.
install(FILES README.md ARCHITECTURE.md CONTRIBUTING.md DESTINATION share/doc/ringmaster)
install(DIRECTORY docs DESTINATION share/doc/ringmaster ${readable})
# Beside each other as in the source tree: the Python example finds the protos from its own place.
install(DIRECTORY examples proto DESTINATION share/ringmaster ${readable}
        PATTERN __pycache__ EXCLUDE
        PATTERN "*.cc" EXCLUDE
        PATTERN CMakeLists.txt EXCLUDE)
# Each of the two finds the other where its links say that it is.
install(CODE [[
  set(share $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share)
  file(CREATE_LINK ../../ringmaster/examples ${share}/doc/ringmaster/examples SYMBOLIC)
  file(CREATE_LINK ../doc/ringmaster/docs ${share}/ringmaster/docs SYMBOLIC)
]])

# bash-completion loads it by the program's name. The program writes it, so that both always agree.
file(MAKE_DIRECTORY ${completion})
add_custom_command(
  OUTPUT ${completion}/ringctl
  COMMAND ringctl completion bash >${completion}/ringctl
  DEPENDS ringctl)
add_custom_target(completion ALL DEPENDS ${completion}/ringctl)
install(FILES ${completion}/ringctl DESTINATION share/bash-completion/completions)
