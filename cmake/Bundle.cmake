# The relocatable bundle: `cmake --build BUILD --target bundle` makes
# ringmaster-VERSION-linux-x86_64.tar.gz, and so does `cpack -G TGZ` with the programs that were
# built. It holds programs, the shared libraries they need but for the C library's and NVIDIA's, GPU
# tests, benchmarks and examples, and runs from any folder of any Linux with glibc 2.36 or newer.
ring_bundle(ringmaster ringworker ringmaster_pjrt_host ringctl)
get_property(programs GLOBAL PROPERTY RINGMASTER_BUNDLE)
list(TRANSFORM programs REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE program_files)
set(backends)
if(TARGET ringmaster_cuda)
  set(backends $<TARGET_FILE:ringmaster_cuda>)
endif()
install(CODE "set(programs \"${program_files}\")\nset(backends \"${backends}\")\nset(strip \"${CMAKE_STRIP}\")"
        COMPONENT bundle EXCLUDE_FROM_ALL)
install(SCRIPT cmake/BundlePrograms.cmake COMPONENT bundle EXCLUDE_FROM_ALL)
install(PROGRAMS scripts/gpu-check scripts/same-bits DESTINATION scripts COMPONENT bundle EXCLUDE_FROM_ALL)
install(FILES README.md ARCHITECTURE.md CONTRIBUTING.md LICENSE DESTINATION .
        COMPONENT bundle EXCLUDE_FROM_ALL)
# Those that need nothing of tests/, and what gpu-check runs.
install(PROGRAMS bench/train bench/vs_pytorch.py bench/jax_training.py DESTINATION bench
        COMPONENT bundle EXCLUDE_FROM_ALL)
install(FILES bench/contenders.py bench/pytorch_training.py bench/torch_layers.py bench/torch_models.py
        DESTINATION bench COMPONENT bundle EXCLUDE_FROM_ALL)
install(DIRECTORY python/ringmaster DESTINATION lib/ringmaster/python ${readable} COMPONENT bundle EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(DIRECTORY docs examples proto DESTINATION . ${readable} COMPONENT bundle EXCLUDE_FROM_ALL
        PATTERN __pycache__ EXCLUDE
        PATTERN "*.cc" EXCLUDE
        PATTERN CMakeLists.txt EXCLUDE)

add_custom_target(bundle
  COMMAND ${CMAKE_CPACK_COMMAND} -G TGZ
  WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
  USES_TERMINAL)
add_dependencies(bundle ${programs})
