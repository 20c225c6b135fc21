# cmake -DROOT=source tree -DHEADER=worker/backend/backend.h -DTOOLS="compiler and library versions"
#       -DOUTPUT=abi_tag.h -DDEPFILE=abi_tag.d -P AbiTag.cmake
# Writes a header with the SHA-256 of HEADER and of everything of ours that it includes, protos in
# place of what is generated from them: what a program and a backend library must share.
cmake_minimum_required(VERSION 3.25)
set(seen)
set(left ${HEADER})
while(left)
  list(POP_FRONT left path)
  if(path IN_LIST seen)
    continue()
  endif()
  list(APPEND seen ${path})
  file(STRINGS ${ROOT}/${path} lines REGEX "^(#include|import) \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[a-z#]+ \"([^\"]+)\".*" "\\1" name "${line}")
    string(REGEX REPLACE "\\.pb\\.h$" ".proto" name "${name}")
    if(name MATCHES "\\.proto$")
      set(name proto/${name})
    endif()
    if(EXISTS ${ROOT}/${name})  # not google/protobuf/*.proto
      list(APPEND left ${name})
    endif()
  endforeach()
endwhile()

list(SORT seen)
set(digests "${TOOLS}\n")
foreach(path IN LISTS seen)
  file(SHA256 ${ROOT}/${path} digest)
  string(APPEND digests "${path} ${digest}\n")
endforeach()
string(SHA256 tag "${digests}")
file(WRITE ${OUTPUT} "// Written by cmake/AbiTag.cmake.
#pragma once

namespace ringmaster {

inline constexpr char kBackendAbi[] = \"${tag}\";

}  // namespace ringmaster
")

list(TRANSFORM seen PREPEND "${ROOT}/")
string(REPLACE ";" " " seen "${seen}")
file(WRITE ${DEPFILE} "${OUTPUT}: ${seen}\n")
