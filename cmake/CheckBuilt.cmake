# Part of `cmake --install` and `cpack`: `built` is a list of TARGET=FILE. Where only some targets
# were built it says which ones are missing and how to build them; CMake's own words name a file.
set(missing)
foreach(pair IN LISTS built)
  string(REGEX MATCH "^([^=]+)=(.+)$" ignored "${pair}")
  if(NOT EXISTS "${CMAKE_MATCH_2}")
    list(APPEND missing ${CMAKE_MATCH_1})
  endif()
endforeach()
if(missing)
  list(JOIN missing " " missing)
  message(FATAL_ERROR
    "Not built yet: ${missing}. Build that, then try again:\n  cmake --build ${build} --target ${missing}")
endif()
