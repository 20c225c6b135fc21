# Part of `cpack -G TGZ`: copies `programs` and `backends`, and what they are linked with, to
# bin, lib/ringmaster and lib. Programs find their libraries by DT_RPATH, which, other than
# DT_RUNPATH, holds for the libraries of libraries too: Debian's name no folder of their own.
set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
set(left_out)
set(packed)
foreach(program IN LISTS programs)
  get_filename_component(name ${program} NAME)
  if(EXISTS ${program})
    file(COPY ${program} DESTINATION ${root}/bin)
    file(RPATH_SET FILE ${root}/bin/${name} NEW_RPATH "$ORIGIN/../lib")
    list(APPEND packed ${root}/bin/${name})
  else()
    list(APPEND left_out ${name})
  endif()
endforeach()
foreach(backend IN LISTS backends)
  get_filename_component(name ${backend} NAME)
  if(EXISTS ${backend})
    file(COPY ${backend} DESTINATION ${root}/lib/ringmaster)
    file(RPATH_SET FILE ${root}/lib/ringmaster/${name} NEW_RPATH "$ORIGIN:$ORIGIN/..")
    list(APPEND packed ${root}/lib/ringmaster/${name})
  else()
    list(APPEND left_out ${name})
  endif()
endforeach()
if(left_out)
  list(JOIN left_out " " left_out)
  message(STATUS "bundle: without ${left_out}, which the target `bundle` would build")
endif()

# The C library belongs to the system, CUDA's libraries to the driver's or Python's installation.
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${packed}
  RESOLVED_DEPENDENCIES_VAR libraries
  UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|mvec|dl|rt|pthread|resolv|util|anl)\\.so"
                      "^lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvidia)[._-]")
if(missing)
  message(FATAL_ERROR "bundle: these libraries were not found: ${missing}")
endif()
foreach(library IN LISTS libraries)
  get_filename_component(name ${library} NAME)
  get_filename_component(file ${library} REALPATH)
  file(MAKE_DIRECTORY ${root}/lib)
  file(COPY_FILE ${file} ${root}/lib/${name})
  list(APPEND packed ${root}/lib/${name})
endforeach()
execute_process(COMMAND ${strip} --strip-unneeded ${packed} COMMAND_ERROR_IS_FATAL ANY)
