#define CATCH_CONFIG_MAIN
#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>

// The default logger exists before any thread of a test, as it does in the programs: spdlog's
// library makes it at its first use, behind a guard that TSan cannot see into.
[[maybe_unused]] static const auto* const default_logger = spdlog::default_logger_raw();
