# cpack reads this once for each kind of package: what the relocatable bundle (TGZ, cmake/Bundle.cmake)
# has other than the Debian package.
set(ENV{SOURCE_DATE_EPOCH} ${CPACK_RINGMASTER_TIME})
if(CPACK_GENERATOR STREQUAL "TGZ")
  list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
  set(CPACK_INSTALL_CMAKE_PROJECTS "${build};ringmaster;bundle;/")
  set(CPACK_PACKAGE_FILE_NAME "ringmaster-${CPACK_PACKAGE_VERSION}-linux-x86_64")
  set(CPACK_STRIP_FILES OFF)  # BundlePrograms.cmake did, libraries too
endif()
