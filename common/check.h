// RING_CHECK ends the process with a text when our own code is wrong. Never for input from a user,
// a file or a peer: that is a Status.
#pragma once

#include <cstdio>
#include <cstdlib>

#define RING_CHECK(condition, text)                                                        \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      std::fprintf(stderr, "%s:%d: bug: %s (%s)\n", __FILE__, __LINE__, text, #condition); \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)
