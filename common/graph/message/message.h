// Forward graphs as messages (proto/ringmaster/v1/graph.proto): what a job carries as its model,
// and what every program of it is built from. Pure; thread-safe (free functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/graph/program.h"
#include "common/status.h"
#include "ringmaster/v1/graph.pb.h"
#include "ringmaster/v1/job.pb.h"
#include "ringmaster/v1/script.pb.h"

namespace ringmaster::graph {

inline constexpr uint32_t kGraphVersion = 1;
// Of a message that is taken from another process, serialized.
inline constexpr size_t kMaxGraphBytes = size_t{2} << 20;

// Segments [A-Za-z0-9_.-]{1,64} joined by `/`, at most 16 of them and 200 bytes, none of them a dot
// or two: what everything in a graph is called.
[[nodiscard]] bool IsName(const std::string& name);

// The canonical message of a forward program of one sample for training, as GraphBuilder makes it:
// before autodiff and any other pass.
[[nodiscard]] v1::Graph ToMessage(const Program& forward);

// The program of so many samples, without gradients; for inference with moving statistics and
// without dropout. INVALID_ARGUMENT names node, attribute, what is expected and what there is where
// the message is not canonical; UNIMPLEMENTED an op, or a version of one, that this release does
// not know. `message` may come from anywhere.
[[nodiscard]] StatusOr<Program> FromMessage(const v1::Graph& message, Mode mode, int64_t samples);

// Of a job whose gradients a program of the user's computes (docs/core_protocol.md): names of
// tensors are the module's, and the only node stands for all of it.
[[nodiscard]] bool IsScript(const v1::Graph& message);
// `content`: lower-case hex, of all that makes the script's results beside its facts.
[[nodiscard]] v1::Graph ScriptGraph(const v1::ScriptFacts& facts, const std::string& content);
// What stands in for a program of it: its tensors in their order, which is that of backward, and
// its scalars. It has no nodes. INVALID_ARGUMENT: the message is no such graph.
inline constexpr uint32_t kMaxRateGroups = 256;
[[nodiscard]] StatusOr<Program> ScriptProgram(const v1::Graph& message, Mode mode, int64_t samples);

// Whether rows of training have a share of the next row's label (Program::share).
enum class Labels : uint8_t { kOwn, kMixed };

struct ProgramOptions {
  Mode mode = Mode::kTraining;
  int64_t samples = 0;  // of the shard, >= 1
  v1::Policy policy = v1::POLICY_FLOAT32;
  v1::MemoryOptions memory = {};
  Labels labels = Labels::kOwn;
};

// Message -> forward -> mixed labels (for training) -> autodiff (for training) -> policy -> fusion
// -> dead nodes -> what `memory` asks for: ready to plan and bind. The same parameters, scalars and
// outputs in the same order for all options of one message.
[[nodiscard]] StatusOr<Program> BuildProgram(const v1::Graph& message,
                                             const ProgramOptions& options);

}  // namespace ringmaster::graph
