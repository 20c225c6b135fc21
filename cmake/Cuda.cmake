# Whether the CUDA backend is built (RINGMASTER_HAS_CUDA), said in one line, and with what: imported
# targets cuda::headers, cuda::cudart (static), cuda::cublas_lt, cuda::cudnn. NCCL is loaded at run time.
set(RINGMASTER_CUDA AUTO CACHE STRING
    "the CUDA backend: AUTO builds it where nvcc and its libraries are, ON demands them, OFF")
set_property(CACHE RINGMASTER_CUDA PROPERTY STRINGS AUTO ON OFF)
set(RINGMASTER_CUDA_ARCHITECTURES "" CACHE STRING
    "GPU architectures that kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES; empty: all that are supported")
set(RINGMASTER_HAS_CUDA OFF)
set(oldest_nvcc 13.0)

# Why not, or what was found.
function(ring_say_cuda text)
  if(RINGMASTER_CUDA STREQUAL "ON" AND NOT RINGMASTER_HAS_CUDA)
    message(FATAL_ERROR "RINGMASTER_CUDA is ON, but ${text}")
  elseif(RINGMASTER_HAS_CUDA)
    message(STATUS "CUDA backend: built with ${text}")
  else()
    message(STATUS "CUDA backend: not built, ${text}")
  endif()
endfunction()

# ring_cuda_library(NAME FILE [STATIC]): target cuda::NAME when FILE is beside nvcc or in the system.
macro(ring_cuda_library name file)
  find_library(RINGMASTER_CUDA_${name} ${file}
    HINTS ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT}
          ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux
    PATH_SUFFIXES lib64 lib)
  mark_as_advanced(RINGMASTER_CUDA_${name})
  if(RINGMASTER_CUDA_${name})
    add_library(cuda::${name} UNKNOWN IMPORTED)
    set_target_properties(cuda::${name} PROPERTIES
      IMPORTED_LOCATION ${RINGMASTER_CUDA_${name}}
      INTERFACE_LINK_LIBRARIES cuda::headers)
  else()
    list(APPEND missing ${file})
  endif()
endmacro()

if(RINGMASTER_CUDA STREQUAL "OFF")
  ring_say_cuda("RINGMASTER_CUDA is OFF")
  return()
elseif(RINGMASTER_SANITIZER)
  ring_say_cuda("sanitizers do not see into device code")
  return()
endif()

find_program(RINGMASTER_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
mark_as_advanced(RINGMASTER_NVCC)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND RINGMASTER_NVCC)
  set(CMAKE_CUDA_COMPILER ${RINGMASTER_NVCC})
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  ring_say_cuda("there is no nvcc in PATH or /usr/local/cuda/bin (CUDA Toolkit ${oldest_nvcc} or newer)")
  return()
endif()

# Code for the A100 and the H100 families, and PTX for what comes after them; CI compiles for one
# alone, which finds what does not compile.
set(CMAKE_CUDA_ARCHITECTURES ${RINGMASTER_CUDA_ARCHITECTURES})
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
list(JOIN CMAKE_CUDA_ARCHITECTURES ", " architectures)
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # it is cuda::cudart
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  ring_say_cuda("nvcc does not work; CMake's log says why")
  return()
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS oldest_nvcc)
  ring_say_cuda("${CMAKE_CUDA_COMPILER} is version ${CMAKE_CUDA_COMPILER_VERSION}, expected ${oldest_nvcc} or newer")
  return()
endif()

add_library(cuda::headers INTERFACE IMPORTED)
target_include_directories(cuda::headers INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
find_path(RINGMASTER_CUDNN_INCLUDE cudnn.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
mark_as_advanced(RINGMASTER_CUDNN_INCLUDE)
set(missing)
ring_cuda_library(cudart libcudart_static.a)
ring_cuda_library(cublas_lt cublasLt)
ring_cuda_library(cudnn cudnn)
if(NOT RINGMASTER_CUDNN_INCLUDE)
  list(APPEND missing cudnn.h)
endif()
if(missing)
  list(JOIN missing ", " missing)
  ring_say_cuda("beside ${CMAKE_CUDA_COMPILER} there is no ${missing}")
  return()
endif()
target_include_directories(cuda::headers INTERFACE ${RINGMASTER_CUDNN_INCLUDE})
target_link_libraries(cuda::cudart INTERFACE Threads::Threads ${CMAKE_DL_LIBS} rt)

# C++20 as everywhere, which CMake 3.25 does not know of nvcc.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
# No contraction and exact division, so that kernels which must give the CPU's bits do. Warnings of
# nvcc and of the host compiler are errors.
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--prec-div=true;--prec-sqrt=true;--ftz=false>")
# Kernels include the formulas of the graph's ops, and with them fmt, which by itself believes that
# nvcc has no constexpr; and nvcc writes `T (S::*member)`, of which the host's compiler warns.
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Wno-parentheses,-Werror>")
add_compile_definitions("$<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>")
if(RINGMASTER_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ring_launcher})
endif()
set(RINGMASTER_HAS_CUDA ON)
get_filename_component(RINGMASTER_CUDA_LIBRARIES ${RINGMASTER_CUDA_cudnn} DIRECTORY)
ring_say_cuda("nvcc ${CMAKE_CUDA_COMPILER_VERSION} for sm ${architectures}; libraries of ${RINGMASTER_CUDA_LIBRARIES}")
