// The kernel table: which engine or algorithm computes which shape on which GPU, as a text file
// that `ringctl tune` writes and people may read. A row a line, five fields between bars; empty
// lines and lines that begin with # are skipped:
//
//   NVIDIA H200 | cudnn 91900 | conv2d | x 64,32,32,96 w ... | fused engine 37 knobs 2=11,13=4
//   NVIDIA H200 | cublaslt 130100 | matmul | m 10 n 64 k 256 ... | algorithm 0000...
//
// Tables of several hosts are merged by putting their files one behind the other, in any order.
// Where two rows have one key (device, library with its version, op, shape), one that keeps all
// bits wins over a narrow one, then the one whose choice comes first as text. Rows have no times,
// because those of two hosts do not compare: each was the quickest on its own.
//
// A value; thread-compatible. It takes part in the numerics class: jobs never time kernels.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/graph/graph.h"
#include "common/status.h"
#include "worker/backend/cuda/libraries/convolution_shape.h"

namespace ringmaster::cuda {

// Which engine of cuDNN computes something, and the rule that picks it: no timing, no chance. Pure;
// thread-safe.

// An engine with its settings, by cuDNN's numbers: they mean the same in one version of cuDNN only.
struct EngineChoice {
  int64_t engine = 0;
  std::vector<std::pair<int64_t, int64_t>> knobs;  // (type, value), by type

  bool operator==(const EngineChoice&) const = default;
};

// `engine 37 knobs 2=11,13=4`, or `engine 37`.
[[nodiscard]] std::string ToString(const EngineChoice& choice);
[[nodiscard]] StatusOr<EngineChoice> ParseEngineChoice(const std::string& text);

// Why an engine of these properties may not compute on values of `type`, or "": it must give the
// same bits on every run, and sums in float32; a job in float32 gets float32 alone, never TF32, and
// no transform (Winograd, FFT) that multiplies rounding errors.
[[nodiscard]] std::string Refusal(const std::vector<cudnnBackendNumericalNote_t>& notes,
                                  graph::DType type);

// Most scratch that an engine may want; it takes part in choosing kernels, and is therefore the
// same on every device. Where nothing manages with it, the first that finalizes is taken.
inline constexpr size_t kConvolutionWorkspaceCap = size_t{1} << 30;

// The first of `count` candidates that can be made: `make(i)` returns its scratch in bytes, or why
// not. nullopt: none can. RESOURCE_EXHAUSTED from `make` ends the search, because memory must never
// choose a kernel.
[[nodiscard]] StatusOr<std::optional<size_t>> ChooseFirst(
    size_t count, size_t cap, const std::function<StatusOr<size_t>(size_t)>& make);

// Rows of the table.

struct PlanKey {
  std::string device;   // as CUDA names it
  std::string library;  // with its version: engines of another one are numbered differently
  std::string op;
  std::string shape;

  auto operator<=>(const PlanKey&) const = default;
};

struct ConvolutionChoice {
  ConvolutionVariant variant;
  EngineChoice engine;

  bool operator==(const ConvolutionChoice&) const = default;
};

// The opaque content of a cublasLtMatmulAlgo_t, which is made to be stored.
struct MatmulChoice {
  std::array<uint64_t, 8> algorithm = {};

  bool operator==(const MatmulChoice&) const = default;
};

using PlanChoice = std::variant<ConvolutionChoice, MatmulChoice>;

// As a row of the table has it: `fused engine 37 knobs 2=11,13=4`, `algorithm 0000...`.
[[nodiscard]] std::string ToString(const PlanChoice& choice);
[[nodiscard]] StatusOr<PlanChoice> ParseChoice(const std::string& text);
// Whether it loses bits: a gradient of weights that is rounded on its way.
[[nodiscard]] bool IsNarrow(const PlanChoice& choice);

class PlanTable {
 public:
  // INVALID_ARGUMENT names `source`, the line and what is wrong with it. Of rows with one key the
  // rule above keeps one.
  [[nodiscard]] static StatusOr<PlanTable> Parse(const std::string& text,
                                                 const std::string& source);

  // By key; Parse gives the same table back.
  [[nodiscard]] std::string Print() const;
  // The beginning of the SHA-256 of what is printed: neither comments nor the order of rows count.
  [[nodiscard]] std::string Version() const;
  // nullptr when the table has no such row, or one for another kind of operation.
  template <typename Choice>
  [[nodiscard]] const Choice* Find(const PlanKey& key) const {
    const auto row = rows_.find(key);
    return row == rows_.end() ? nullptr : std::get_if<Choice>(&row->second);
  }
  // In place of what the key had.
  void Put(PlanKey key, PlanChoice choice) { rows_[std::move(key)] = std::move(choice); }
  [[nodiscard]] size_t size() const { return rows_.size(); }

 private:
  std::map<PlanKey, PlanChoice> rows_;
};

// The file that the environment variable RINGMASTER_KERNEL_TABLE names, else kernel_table.txt
// beside the library that this is part of, else "": no table.
[[nodiscard]] std::string InstalledPlanTablePath();

// `given`; where it is nullptr the installed table, read once in the life of the process and empty
// where there is none. Thread-safe.
[[nodiscard]] StatusOr<const PlanTable*> PlanTableOrInstalled(const PlanTable* given);

// What the numerics class says of it: `none`, `unreadable`, or its Version.
[[nodiscard]] std::string InstalledPlanTableVersion();

}  // namespace ringmaster::cuda
