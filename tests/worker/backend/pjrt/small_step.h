// One step of a small model with every kind of argument (dropout, batch normalization, shares of
// rows) on the PJRT backend with the plugin double: what tests of the plugin's process run. Main
// thread, where PJRT_DOUBLE is set; else thread-safe.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "common/check.h"
#include "common/graph/autodiff.h"
#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/support/small_models.h"
#include "worker/backend/pjrt/pjrt_backend.h"

namespace ringmaster::testing {

inline constexpr int64_t kSmallClasses = 3;

// What plugin doubles of processes that start from now on are told (double/options.h).
class DoubleIsTold {
 public:
  explicit DoubleIsTold(const std::string& options) { setenv("PJRT_DOUBLE", options.c_str(), 1); }
  ~DoubleIsTold() { unsetenv("PJRT_DOUBLE"); }
  DoubleIsTold(const DoubleIsTold&) = delete;
  DoubleIsTold& operator=(const DoubleIsTold&) = delete;
};

inline pjrt::PluginOptions DoubleOptions() {
  return {.path = PJRT_DOUBLE_FILE, .program = PJRT_HOST_FILE};
}

inline graph::Program SmallProgram(int64_t samples = 4) {
  graph::Program program = SmallConvolutional(graph::Mode::kTraining, samples).value();
  const Status differentiated = graph::Differentiate(&program);
  RING_CHECK(differentiated.ok() && !program.gradient_order.empty(), "a program that trains");
  return program;
}

inline StatusOr<std::unique_ptr<BoundProgram>> BindSmall(pjrt::PjrtBackend& backend,
                                                         const CoreOptions& options = {
                                                             .name = "core0"}) {
  return BoundProgram::Create(backend, SmallProgram(), options);
}

// Images of the first seed, weights of the other.
inline StatusOr<ShardResult> RunSmall(BoundProgram& bound, uint64_t weights_seed = 1) {
  const graph::Program program = SmallProgram();
  graph::ReferenceFeeds feeds =
      FeedProgram(program, {.seed = weights_seed, .classes = kSmallClasses});
  const graph::ReferenceFeeds images = FeedProgram(program, {.classes = kSmallClasses});
  for (const graph::Column& column : program.columns) {
    feeds[column.value] = images.at(column.value);
  }
  return bound.Run(feeds, KeysOf(program));
}

// A step on a core of the calling thread.
inline StatusOr<ShardResult> SmallStep(pjrt::PjrtBackend& backend) {
  RING_ASSIGN_OR_RETURN(const auto bound, BindSmall(backend));
  return RunSmall(*bound);
}

// The same on a new backend.
inline StatusOr<ShardResult> SmallStep(const pjrt::PluginOptions& options = DoubleOptions()) {
  RING_ASSIGN_OR_RETURN(const auto backend, pjrt::PjrtBackend::Create(options));
  return SmallStep(*backend);
}

// Of a step that nothing disturbs.
inline std::string CleanHash() {
  const auto result = SmallStep();
  RING_CHECK(result.ok(), Message(result.status()).c_str());
  return result->Hash();
}

}  // namespace ringmaster::testing
