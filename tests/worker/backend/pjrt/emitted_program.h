// A program as its module, run by the interpreter of StableHLO: what tests of the emitter judge.
// Thread-compatible.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/ops/reference_executor.h"
#include "common/numeric/philox.h"
#include "tests/support/stablehlo/interpreter.h"
#include "worker/backend/pjrt/emit/emit.h"

namespace ringmaster::testing {

class EmittedProgram {
 public:
  using Convolutions = pjrt::Convolutions;
  struct Results {
    // By place in the program's scalars, rows and normalizations, and by canonical number.
    std::map<size_t, std::vector<float>> scalars, rows, means, variances, gradients;
  };

  static StatusOr<EmittedProgram> Create(const graph::Program& program,
                                         pjrt::Rows rows = pjrt::Rows::kAll,
                                         Convolutions convolutions = Convolutions::kFloat32) {
    EmittedProgram made(program);
    RING_ASSIGN_OR_RETURN(made.module_, pjrt::Emit(program, rows, convolutions));
    RING_ASSIGN_OR_RETURN(made.parsed_, stablehlo::Module::Parse(made.module_.text));
    return made;
  }

  // `samples`: how many rows are samples, where the module asks.
  StatusOr<Results> Run(const graph::ReferenceFeeds& feeds, const graph::RandomKeys& keys,
                        int32_t samples = 0) const {
    std::vector<stablehlo::Tensor> arguments;
    for (const pjrt::Argument& argument : module_.arguments) {
      arguments.push_back(ArgumentOf(argument, feeds, keys, samples));
    }
    RING_ASSIGN_OR_RETURN(const auto made, parsed_->Run(arguments));
    if (made.size() != module_.results.size()) {
      return Internal("expected {} results, got {}", module_.results.size(), made.size());
    }
    Results results;
    for (size_t i = 0; i < made.size(); ++i) {
      const pjrt::Result& what = module_.results[i];
      if (made[i].type != stablehlo::Type::kFloat32 || made[i].shape != what.shape) {
        return Internal("result {} is {}, not float32 of {}", i, Text(made[i].tensor_type()),
                        graph::ToString(what.shape));
      }
      const float* const values = made[i].data<float>();
      MembersOf(what.kind, &results)[what.index].assign(
          values, values + made[i].bytes.size() / sizeof(float));
    }
    return results;
  }

  [[nodiscard]] const pjrt::Module& module() const { return module_; }

 private:
  using Kind = pjrt::Argument::Kind;

  explicit EmittedProgram(const graph::Program& program) : program_(program) {}

  static std::map<size_t, std::vector<float>>& MembersOf(pjrt::Result::Kind kind,
                                                         Results* results) {
    switch (kind) {
      case pjrt::Result::Kind::kScalar:
        return results->scalars;
      case pjrt::Result::Kind::kRows:
        return results->rows;
      case pjrt::Result::Kind::kBatchMean:
        return results->means;
      case pjrt::Result::Kind::kBatchVariance:
        return results->variances;
      case pjrt::Result::Kind::kGradient:
        break;
    }
    return results->gradients;
  }

  [[nodiscard]] graph::ValueId FedBy(const pjrt::Argument& argument) const {
    switch (argument.kind) {
      case Kind::kColumn:
        return program_.columns[argument.index].value;
      case Kind::kSeed:
        return program_.seeds[argument.index].value;
      case Kind::kShare:
        return program_.share;
      case Kind::kParameter:
        return program_.parameters[argument.index].value;
      case Kind::kFrozen:
        return program_.frozen[argument.index].value;
      case Kind::kMovingMean:
        return program_.normalizations[argument.index].moving_mean;
      case Kind::kMovingVariance:
        return program_.normalizations[argument.index].moving_variance;
      case Kind::kRows:
      case Kind::kDropout:
        break;
    }
    return graph::kNoValue;
  }

  template <typename T, typename From>
  static void Fill(const std::vector<From>& values, stablehlo::Tensor* tensor) {
    for (size_t i = 0; i < values.size(); ++i) tensor->data<T>()[i] = static_cast<T>(values[i]);
  }

  stablehlo::Tensor ArgumentOf(const pjrt::Argument& argument, const graph::ReferenceFeeds& feeds,
                               const graph::RandomKeys& keys, int32_t samples) const {
    using stablehlo::Type;
    const Type type = argument.type == pjrt::ElementType::kFloat32 ? Type::kFloat32
                      : argument.type == pjrt::ElementType::kInt32 ? Type::kInt32
                                                                   : Type::kUInt32;
    stablehlo::Tensor tensor({type, argument.shape});
    if (argument.kind == Kind::kRows) {
      Fill<int32_t>(std::vector{samples}, &tensor);
    } else if (argument.kind == Kind::kDropout) {
      std::vector<uint32_t> words;
      for (const uint64_t sample : keys.samples) {
        const PhiloxStream stream(keys.seed, PhiloxStream::Purpose::kDropout, keys.step, sample,
                                  module_.dropout_layers[argument.index]);
        words.insert(words.end(), {stream.key()[0], stream.key()[1], stream.counter_high()[0],
                                   stream.counter_high()[1]});
      }
      Fill<uint32_t>(words, &tensor);
    } else if (type == Type::kInt32) {
      Fill<int32_t>(feeds.at(FedBy(argument)), &tensor);
    } else {
      Fill<float>(feeds.at(FedBy(argument)), &tensor);
    }
    return tensor;
  }

  graph::Program program_;
  pjrt::Module module_;
  std::shared_ptr<const stablehlo::Module> parsed_;
};

}  // namespace ringmaster::testing
