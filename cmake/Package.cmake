# `cpack -G DEB` in a build folder makes ringmaster_VERSION_ARCHITECTURE.deb and python3-ringmaster_VERSION_all.deb
# (PythonPackage.cmake.in), and a list of its parts beside each (.spdx.json). The version is
# project()'s; the libraries that they depend on are found by dpkg-shlibdeps. `cpack -G TGZ` makes the
# relocatable bundle (Bundle.cmake, PackageKinds.cmake).
set(RINGMASTER_MAINTAINER "The Ringmaster authors <ringmaster@localhost>" CACHE STRING
    "maintainer field of the Debian package")
set(debian ${CMAKE_SOURCE_DIR}/deploy/debian)

# Two builds of a commit make the same package, byte for byte: its only time is SOURCE_DATE_EPOCH, or else the commit's,
# and where there is no repository the day's. CMake and cpack take it from the environment.
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} log -1 --format=%ct OUTPUT_VARIABLE commit_time
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_repository)
  if(no_repository)
    string(TIMESTAMP commit_time %s UTC)
    math(EXPR commit_time "${commit_time} / 86400 * 86400")
  endif()
  set(ENV{SOURCE_DATE_EPOCH} ${commit_time})
endif()
set(CPACK_RINGMASTER_TIME $ENV{SOURCE_DATE_EPOCH})  # PackageKinds.cmake

# Debian wants a compressed changelog in every package, with the package's version.
string(TIMESTAMP RINGMASTER_CHANGELOG_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${debian}/changelog.in ${CMAKE_BINARY_DIR}/deploy/changelog @ONLY)
add_custom_command(
  OUTPUT ${changelog}
  COMMAND gzip -9nkf ${CMAKE_BINARY_DIR}/deploy/changelog
  DEPENDS ${CMAKE_BINARY_DIR}/deploy/changelog)
add_custom_target(changelog ALL DEPENDS ${changelog})
install(FILES ${changelog} ${debian}/copyright
        DESTINATION share/doc/ringmaster)

# Not part of a plain installation: below another prefix no Python looks there.
install(DIRECTORY python/ringmaster DESTINATION lib/python3/dist-packages ${readable} COMPONENT python EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(FILES ${changelog} ${debian}/copyright
        DESTINATION share/doc/python3-ringmaster COMPONENT python EXCLUDE_FROM_ALL)
set(CPACK_RINGMASTER_PYTHON ${CMAKE_CPACK_COMMAND} --config ${CMAKE_BINARY_DIR}/PythonPackage.cmake)  # PackageParts.cmake
configure_file(cmake/PythonPackage.cmake.in ${CMAKE_BINARY_DIR}/PythonPackage.cmake @ONLY)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ringmaster)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "The Ringmaster authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "data-parallel training with the same result on every cluster")
set(CPACK_PACKAGE_DESCRIPTION
    "A coordinator (ringmaster) splits every batch into shards, worker daemons
(ringworker) compute gradients and sum them over a ring of gRPC streams, and
ringctl submits and watches jobs. On CPUs or GPUs of one model the result does
not depend on how many workers took part, or on which of them were lost.
.
Both daemons start at installation, on loopback only.")
set(CPACK_PACKAGING_INSTALL_PREFIX /)
set(CPACK_INSTALL_CMAKE_PROJECTS
    "${CMAKE_BINARY_DIR};ringmaster;program;/usr;${CMAKE_BINARY_DIR};ringmaster;configuration;/")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/PackageModes.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/PackageParts.cmake)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/PackageKinds.cmake)
set(CPACK_STRIP_FILES ON)  # the build id, part of the numerics class, stays

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${RINGMASTER_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# NVIDIA's libraries, which the CUDA backend needs where there is a GPU, are no Debian packages.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${RINGMASTER_CUDA_LIBRARIES})
set(CPACK_DEBIAN_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)  # datasets at https and s3 addresses
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
    "python3-ringmaster, python3-torch, bash-completion, python3-grpcio, python3-protobuf, python3-yaml, protobuf-compiler-grpc")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    "${debian}/conffiles;${debian}/postinst;${debian}/prerm;${debian}/postrm")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
