# One folder = one noun = one target. Sources are listed; only folders in which an op is a file are globbed,
# so that a new op is not named there.

# Every test with the label unit that this build runs, which the sanitizer stages build, and what CI
# runs of the release preset, with the programs.
add_custom_target(unit_tests)
add_custom_target(release_tests)
set(RINGMASTER_TEST_ENVIRONMENT
    "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/support/tsan.supp:halt_on_error=1"
    "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1"
    "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1")

# ring_library(NAME SOURCES a.cc b.cc DEPS ring_x absl::status)
function(ring_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# ring_program(NAME SOURCES main.cc DEPS ring_x)
function(ring_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# ring_moves_frames(NAME ...): programs in which megabytes go round a ring. Their malloc is jemalloc: glibc's gives
# the memory of each received frame back to the kernel and takes it anew, and page faults were half of
# what a frame costs. mallopt and malloc_trim are glibc's and say nothing to it. Sanitizers have their own. Every
# other program, ringmaster among them, has glibc's.
function(ring_moves_frames)
  if(NOT RINGMASTER_SANITIZER)
    foreach(name IN LISTS ARGN)
      target_link_libraries(${name} PRIVATE -Wl,--no-as-needed ${RINGMASTER_JEMALLOC} -Wl,--as-needed)
    endforeach()
  endif()
endfunction()

# ring_test(NAME SOURCES a_test.cc DEPS ring_x [LABELS unit] [TIMEOUT seconds] [NIGHTLY]): adds tests of a folder
# to the Catch2 program NAME, which is one ctest entry. The first call makes it and says its labels;
# folders of one kind share a program, because each costs a reading of all headers and a link. Labels:
# unit (every preset), net (needs sockets), slow, gpu (does more where there is one: part of the bundle,
# run by scripts/gpu-check); not under TSan: uninstrumented, which hands work to threads of libraries
# that it cannot see into (OpenMP teams, gRPC), and sequential, which starts no thread. Every unit test,
# but for those of CUDA, runs under AddressSanitizer in CI; in the release preset CI builds and runs those that are `bits`
# (what the optimizer makes of arithmetic) or gpu, and scripts/test nightly all of them. With NIGHTLY
# the cases with the tag [nightly] are an entry of their own, NAME_nightly, which CI leaves out.
function(ring_test name)
  cmake_parse_arguments(ARG "NIGHTLY" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(TARGET ${name})
    target_sources(${name} PRIVATE ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_DEPS})
    if(ARG_LABELS OR ARG_TIMEOUT OR ARG_NIGHTLY)
      message(FATAL_ERROR "ring_test(${name}): the first call says labels, time limit and NIGHTLY")
    endif()
    return()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(in_release ON)
  if(unit IN_LIST ARG_LABELS AND NOT bits IN_LIST ARG_LABELS AND NOT gpu IN_LIST ARG_LABELS)
    set(in_release OFF)
    list(APPEND ARG_LABELS sanitizers)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ring_testing_main ${ARG_DEPS})
  add_test(NAME ${name} COMMAND ${name} $<$<BOOL:${ARG_NIGHTLY}>:~[nightly]>
           WORKING_DIRECTORY ${CMAKE_BINARY_DIR} COMMAND_EXPAND_LISTS)
  set(entries ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  if(ARG_NIGHTLY)
    add_test(NAME ${name}_nightly COMMAND ${name} [nightly] --warn NoTests WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties(${name}_nightly PROPERTIES LABELS "nightly")
    list(APPEND entries ${name}_nightly)
  endif()
  set(environment ${RINGMASTER_TEST_ENVIRONMENT})
  if(net IN_LIST ARG_LABELS)  # gRPC polls as in ringworker (worker/ring/grpc/event_queue.h)
    list(APPEND environment GRPC_POLL_STRATEGY=poll)
  endif()
  set_tests_properties(${entries} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${environment}")
  if(in_release)
    add_dependencies(release_tests ${name})
  endif()
  if(RINGMASTER_SANITIZER STREQUAL "thread"
     AND (uninstrumented IN_LIST ARG_LABELS OR sequential IN_LIST ARG_LABELS))
    return()
  endif()
  if(unit IN_LIST ARG_LABELS)
    add_dependencies(unit_tests ${name})
  endif()
  if(gpu IN_LIST ARG_LABELS)
    ring_bundle(${name})
  endif()
endfunction()

# ring_bundle(NAME ...): programs that the relocatable bundle (Bundle.cmake) holds in bin.
function(ring_bundle)
  set_property(GLOBAL APPEND PROPERTY RINGMASTER_BUNDLE ${ARGN})
  foreach(name IN LISTS ARGN)
    set_property(TARGET ${name} APPEND PROPERTY BUILD_RPATH "$ORIGIN/../lib")
    target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
endfunction()

# ring_loads_backends(NAME ...): programs and tests that may load a backend library: they show it their
# symbols. Tests have the CUDA backend built beside them where it is built at all; of the programs of
# users the target `programs` has, so that one who only wants ringworker need not wait for nvcc.
function(ring_loads_backends)
  set_target_properties(${ARGN} PROPERTIES ENABLE_EXPORTS ON)
  if(TARGET ringmaster_cuda)
    foreach(name IN LISTS ARGN)
      if(NOT name STREQUAL "ringworker")
        add_dependencies(${name} ringmaster_cuda)
      endif()
    endforeach()
  endif()
endfunction()

# ring_source_digest(NAME HEADER folder/name.h CONSTANT kName SOURCES file|folder ... [TOOLS text] [WITHOUT pattern]):
# a header with the SHA-256 of sources of ours (source_digest.py), for the targets that link NAME.
set(ring_generated ${CMAKE_BINARY_DIR}/generated)
add_custom_target(source_digests)
function(ring_source_digest name)
  cmake_parse_arguments(ARG "" "HEADER;CONSTANT;TOOLS;WITHOUT" "SOURCES" ${ARGN})
  set(header ${ring_generated}/${ARG_HEADER})
  # The depfile knows what was read; a file that is new in a folder is newer than the header.
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  set(read)
  foreach(path IN LISTS paths)
    file(GLOB within CONFIGURE_DEPENDS ${path}/*.cc ${path}/*.h ${path}/*.cu)
    list(APPEND read ${within})
  endforeach()
  add_custom_command(
    OUTPUT ${header}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/source_digest.py --root ${CMAKE_SOURCE_DIR}
            --constant ${ARG_CONSTANT} --output ${header} --depfile ${header}.d "--tools=${ARG_TOOLS}"
            "--without=${ARG_WITHOUT}" ${ARG_SOURCES}
    DEPENDS ${CMAKE_SOURCE_DIR}/cmake/source_digest.py ${read}
    DEPFILE ${header}.d
    COMMENT "Digest of sources ${ARG_HEADER}"
    VERBATIM)
  add_custom_target(${name}_header DEPENDS ${header})
  add_dependencies(source_digests ${name}_header)
  add_library(${name} INTERFACE)
  target_include_directories(${name} INTERFACE ${ring_generated})
  add_dependencies(${name} ${name}_header)
endfunction()
