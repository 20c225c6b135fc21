# Compiler flags for all of our own code (nvcc's are in Cuda.cmake); presets choose only the build type and the sanitizer.

# AVX2 is the floor of every supported machine; wider paths are chosen at run time. Contraction to
# fused multiply-add is off because results must not depend on what a compiler fuses.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-march=x86-64-v3;-ffp-contract=off;-fno-math-errno>")
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Werror;-Wno-missing-field-initializers>")
add_link_options(-Wl,--build-id=sha1)

# What makes a mistake with memory hard to use: checked copies, guarded stacks, read-only relocations, programs anywhere
# in memory. None of it touches floating point, so no bit of a result depends on it.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3;-fstack-protector-strong;-fstack-clash-protection;-fcf-protection>")
  add_link_options(-Wl,-z,relro,-z,now)
  # No program says in which folder it was built: two folders make the same ones. The last that fits counts.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=;-ffile-prefix-map=${CMAKE_BINARY_DIR}/=build/>")
  include(CheckPIESupported)
  check_pie_supported()
endif()

# Clones and worktrees share what ccache has: paths in the source tree count relative to it.
find_program(RINGMASTER_CCACHE ccache)
if(RINGMASTER_CCACHE)
  set(ring_launcher env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=true ${RINGMASTER_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${ring_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ring_launcher})
endif()

find_program(RINGMASTER_MOLD mold)
if(RINGMASTER_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# g++ 12 with sanitizers sees uninitialized values in std::function and std::optional that are not there.
if(RINGMASTER_SANITIZER)
  add_compile_options(-Wno-maybe-uninitialized)
endif()

if(RINGMASTER_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(RINGMASTER_FUZZ)
  # clang: more steps for our constant tables, the instruction that it wants named, and no warnings of its own as errors.
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer -fconstexpr-steps=100000000 -mcrc32 -Wno-error)
  add_link_options(-fsanitize=address,undefined)
elseif(RINGMASTER_SANITIZER STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
