#include "tests/support/stablehlo/interpreter.h"

#include "tests/support/stablehlo/computation.h"
#include "tests/support/stablehlo/parser.h"

namespace ringmaster::testing::stablehlo {
namespace {

Status CheckResults(const ModuleText& text, const Computation& main) {
  if (main.results().size() != text.results.size()) {
    return ErrorAt(main.end(), "func.return: {} values, the function has {}", main.results().size(),
                   text.results.size());
  }
  for (size_t i = 0; i < text.results.size(); ++i) {
    if (main.results()[i] == text.results[i]) continue;
    return ErrorAt(main.end(), "func.return: value {} is {}, the function's result {}", i,
                   Text(main.results()[i]), Text(text.results[i]));
  }
  return absl::OkStatus();
}

StatusOr<std::optional<size_t>> AliasOf(const ModuleText& text, const ArgumentText& argument) {
  const auto found = argument.attributes.find("tf.aliasing_output");
  if (found == argument.attributes.end()) return std::nullopt;
  const auto* index = std::get_if<IntegerAttribute>(&found->second);
  if (index == nullptr || index->type != "i32" || index->value < 0 ||
      index->value >= static_cast<int64_t>(text.results.size())) {
    return ErrorAt(argument.at, "tf.aliasing_output of %{} is not the number of a result, i32",
                   argument.name);
  }
  const auto result = static_cast<size_t>(index->value);
  if (text.results[result].bytes() != argument.type.bytes()) {
    return ErrorAt(argument.at, "%{} is {}, the result in its place {}", argument.name,
                   Text(argument.type), Text(text.results[result]));
  }
  return result;
}

}  // namespace

Module::Module() = default;
Module::~Module() = default;

StatusOr<std::unique_ptr<Module>> Module::Parse(const std::string& text) {
  RING_ASSIGN_OR_RETURN(const ModuleText parsed, ParseText(text));
  std::unique_ptr<Module> module(new Module());
  module->name_ = parsed.name;
  RING_ASSIGN_OR_RETURN(module->main_, Computation::Compile(parsed.main, "func.return", {}));
  RING_RETURN_IF_ERROR(CheckResults(parsed, *module->main_));
  for (const ArgumentText& argument : parsed.main.arguments) {
    RING_ASSIGN_OR_RETURN(const std::optional<size_t> alias, AliasOf(parsed, argument));
    module->aliases_.push_back(alias);
  }
  module->arguments_ = module->main_->arguments();
  module->results_ = module->main_->results();
  return module;
}

StatusOr<std::vector<Tensor>> Module::Run(std::span<const Tensor> arguments) const {
  std::vector<const Tensor*> pointers;
  for (const Tensor& argument : arguments) pointers.push_back(&argument);
  return Run(pointers);
}

StatusOr<std::vector<Tensor>> Module::Run(std::span<const Tensor* const> arguments) const {
  if (arguments.size() != arguments_.size()) {
    return InvalidArgument("{} arguments, @{} takes {}", arguments.size(), name_,
                           arguments_.size());
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const TensorType type = arguments[i]->tensor_type();
    if (type == arguments_[i] && arguments[i]->bytes.size() == type.bytes()) continue;
    return InvalidArgument("argument {} is {} in {} bytes, @{} takes {}", i, Text(type),
                           arguments[i]->bytes.size(), name_, Text(arguments_[i]));
  }
  return main_->Run(arguments);
}

size_t Module::operations() const { return main_->operations(); }

Memory Module::memory(Padding padding) const { return main_->memory(padding); }

}  // namespace ringmaster::testing::stablehlo
