// The kernel table: which engine or algorithm computes which shape on which GPU, as a text file
// that `ringctl tune` writes and people may read. A row a line, five fields between bars; empty
// lines and lines that begin with # are skipped:
//
//   NVIDIA H200 | cudnn 91900 | conv2d | x 64,32,32,96 w ... | fused engine 37 knobs 2=11,13=4
//   NVIDIA H200 | cublaslt 130100 | matmul | m 10 n 64 k 256 ... | algorithm 0000...
//
// A value; thread-compatible. It takes part in the numerics class: jobs never time kernels.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "common/status.h"
#include "worker/backend/cuda/libraries/convolution_shape.h"
#include "worker/backend/cuda/libraries/engine_choice.h"

namespace ringmaster::cuda {

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

class PlanTable {
 public:
  // INVALID_ARGUMENT names `source`, the line and what is wrong with it; two rows of one key are.
  [[nodiscard]] static StatusOr<PlanTable> Parse(const std::string& text,
                                                 const std::string& source);
  // INVALID_ARGUMENT, or NOT_FOUND with the path.
  [[nodiscard]] static StatusOr<PlanTable> Load(const std::string& path);

  // By key; Parse gives the same table back.
  [[nodiscard]] std::string Print() const;
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

// What the numerics class says of it: `none`, `unreadable`, or the beginning of its SHA-256.
[[nodiscard]] std::string InstalledPlanTableVersion();

}  // namespace ringmaster::cuda
