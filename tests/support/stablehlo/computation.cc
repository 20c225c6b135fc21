#include "tests/support/stablehlo/computation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tests/support/stablehlo/operation.h"
#include "tests/support/stablehlo/ops/op_table.h"

namespace ringmaster::testing::stablehlo {

struct Computation::Compiler {
  struct Group {  // the results of one op, or an argument
    uint32_t first = 0;
    int64_t values = 1;
    bool counted = false;  // named with #: %r:2
  };

  Computation& computation;
  const std::set<std::string>& outer;
  std::map<std::string, Group> names;

  Status Define(Position at, const std::string& name, Group group) {
    if (outer.contains(name)) return ErrorAt(at, "%{} hides a value of that name around it", name);
    if (!names.emplace(name, group).second) return ErrorAt(at, "%{} is defined twice", name);
    return absl::OkStatus();
  }

  StatusOr<uint32_t> Resolve(const Use& use) const {
    const auto found = names.find(use.name);
    if (found == names.end()) {
      return ErrorAt(use.at, "%{} is not defined{}", use.name,
                     outer.contains(use.name) ? " in this region" : " here");
    }
    const Group& group = found->second;
    const int64_t index = use.index.value_or(0);
    if ((!use.index && group.values != 1) || index < 0 || index >= group.values) {
      return ErrorAt(use.at, "%{} has {} values: name one as %{}#0", use.name, group.values,
                     use.name);
    }
    return group.first + static_cast<uint32_t>(index);
  }

  StatusOr<std::vector<uint32_t>> Operands(const OperationText& text) const {
    if (text.operands.size() != text.operand_types.size()) {
      return ErrorAt(text.at, "{}: {} operands with {} types", text.op, text.operands.size(),
                     text.operand_types.size());
    }
    std::vector<uint32_t> operands;
    for (size_t i = 0; i < text.operands.size(); ++i) {
      RING_ASSIGN_OR_RETURN(const uint32_t value, Resolve(text.operands[i]));
      if (computation.values_[value] != text.operand_types[i]) {
        return ErrorAt(text.operands[i].at, "{}: %{} is {}, its type says {}", text.op,
                       text.operands[i].name, Text(computation.values_[value]),
                       Text(text.operand_types[i]));
      }
      operands.push_back(value);
    }
    return operands;
  }

  StatusOr<Operation::Regions> Regions(const OperationText& text) const {
    std::set<std::string> visible = outer;
    for (const auto& [name, group] : names) {
      if (!text.regions.empty()) visible.insert(name);
    }
    Operation::Regions regions;
    for (const RegionText& region : text.regions) {
      RING_ASSIGN_OR_RETURN(std::shared_ptr<const Computation> compiled,
                            Compile(region, "stablehlo.return", visible));
      regions.push_back(std::move(compiled));
    }
    return regions;
  }

  Status Add(const OperationText& text) {
    Instruction instruction;
    RING_ASSIGN_OR_RETURN(instruction.operands, Operands(text));
    RING_ASSIGN_OR_RETURN(Operation::Regions regions, Regions(text));
    const Operation operation(text, std::move(regions));
    if (text.result_types.size() != static_cast<size_t>(text.results)) {
      return operation.Fail("{} results with {} types", text.results, text.result_types.size());
    }
    if (text.op == "stablehlo.constant") {
      RING_RETURN_IF_ERROR(operation.Expect(0, 1));
      RING_ASSIGN_OR_RETURN(const DenseAttribute* value, operation.Get<DenseAttribute>("value"));
      RING_RETURN_IF_ERROR(operation.ExpectResult(value->value.tensor_type()));
      instruction.constant = value->value;
    } else {
      const Rule rule = FindRule(text.op);
      if (rule == nullptr) return operation.Fail("no such op here");
      RING_ASSIGN_OR_RETURN(instruction.kernel, rule(operation));
    }
    RING_RETURN_IF_ERROR(operation.CheckAllRead());
    instruction.results = text.result_types;
    instruction.first = static_cast<uint32_t>(computation.values_.size());
    if (text.results > 0) {
      RING_RETURN_IF_ERROR(Define(text.at, text.result, {instruction.first, text.results}));
    }
    computation.values_.insert(computation.values_.end(), instruction.results.begin(),
                               instruction.results.end());
    computation.instructions_.push_back(std::move(instruction));
    return absl::OkStatus();
  }

  Status Finish(const OperationText& text, const std::string& terminator) {
    if (text.op != terminator) return ErrorAt(text.at, "{} where {} must be", text.op, terminator);
    RING_ASSIGN_OR_RETURN(computation.returned_, Operands(text));
    if (!text.result_types.empty() || !text.attributes.empty() || !text.regions.empty() ||
        text.results != 0) {
      return ErrorAt(text.at, "{} has neither results nor attributes nor regions", text.op);
    }
    computation.results_ = text.operand_types;
    computation.end_ = text.at;
    return absl::OkStatus();
  }
};

StatusOr<std::unique_ptr<Computation>> Computation::Compile(const RegionText& region,
                                                            const std::string& terminator,
                                                            const std::set<std::string>& outer) {
  auto computation = std::make_unique<Computation>();
  Compiler compiler{*computation, outer, {}};
  for (const ArgumentText& argument : region.arguments) {
    const auto number = static_cast<uint32_t>(computation->values_.size());
    RING_RETURN_IF_ERROR(compiler.Define(argument.at, argument.name, {number, 1}));
    computation->arguments_.push_back(argument.type);
    computation->values_.push_back(argument.type);
  }
  if (region.operations.empty()) {
    return ErrorAt(region.end, "expected {} before the end", terminator);
  }
  for (size_t i = 0; i + 1 < region.operations.size(); ++i) {
    const OperationText& operation = region.operations[i];
    if (operation.op == terminator) return ErrorAt(operation.at, "{} before the end", terminator);
    RING_RETURN_IF_ERROR(compiler.Add(operation));
  }
  RING_RETURN_IF_ERROR(compiler.Finish(region.operations.back(), terminator));
  computation->PlanLives();
  computation->FindOnlyOp(region);
  return computation;
}

void Computation::PlanLives() {
  std::vector<bool> read(values_.size(), false);
  for (const uint32_t value : returned_) read[value] = true;
  for (size_t i = 0; i < arguments_.size(); ++i) read[i] = true;  // they are the caller's
  for (size_t i = instructions_.size(); i-- > 0;) {
    Instruction& instruction = instructions_[i];
    for (size_t result = 0; result < instruction.results.size(); ++result) {
      const auto value = static_cast<uint32_t>(instruction.first + result);
      if (!read[value]) instruction.dead.push_back(value);
    }
    for (size_t operand = 0; operand < instruction.operands.size(); ++operand) {
      const uint32_t value = instruction.operands[operand];
      if (read[value]) continue;
      read[value] = true;
      instruction.dead.push_back(value);
      const bool alone = std::ranges::count(instruction.operands, value) == 1;
      instruction.in_place |= operand == 0 && alone && instruction.kernel.in_place &&
                              values_[value].bytes() == instruction.results[0].bytes();
    }
  }
}

void Computation::FindOnlyOp(const RegionText& region) {
  if (instructions_.size() != 1 || arguments_.size() != 2 || returned_.size() != 1 ||
      returned_[0] != 2) {
    return;
  }
  const std::vector<uint32_t>& operands = instructions_[0].operands;
  if (operands.size() != 2 || operands[0] + operands[1] != 1) return;
  const OperationText& operation = region.operations[0];
  only_op_ = operation.op;
  swapped_ = operands[0] == 1;
  const auto direction = operation.attributes.find("comparison_direction");
  if (direction != operation.attributes.end()) {
    direction_ = std::get<EnumAttribute>(direction->second).value;
  }
}

namespace {

// Memory of values that are dead, for those to come, also of the thread's next run: fresh pages
// cost more than most ops.
class Recycler {
 public:
  // Of that many bytes, which may be anything.
  Bytes Take(size_t bytes) {
    const auto found = free_.lower_bound(bytes);
    if (found == free_.end() || found->first > 2 * bytes + kSmall) return Bytes(bytes);
    Bytes memory = std::move(found->second);
    held_ -= found->first;
    free_.erase(found);
    memory.resize(bytes);
    return memory;
  }
  void Give(Bytes memory) {
    const size_t bytes = memory.size();
    if (bytes <= kSmall) return;
    if (held_ + bytes > kMost) {
      free_.clear();
      held_ = 0;
    }
    held_ += bytes;
    free_.emplace(bytes, std::move(memory));
  }

 private:
  static constexpr size_t kSmall = 4096;
  static constexpr size_t kMost = size_t{1} << 29;

  std::multimap<size_t, Bytes> free_;
  size_t held_ = 0;
};

}  // namespace

std::vector<Tensor> Computation::Run(Inputs arguments) const {
  std::vector<Tensor> owned(values_.size());
  std::vector<const Tensor*> values(values_.size());
  std::ranges::copy(arguments, values.begin());
  thread_local Recycler recycler;
  std::vector<const Tensor*> inputs;
  for (const Instruction& instruction : instructions_) {
    if (!instruction.kernel.run) {
      values[instruction.first] = &instruction.constant;
      continue;
    }
    inputs.clear();
    for (const uint32_t operand : instruction.operands) inputs.push_back(values[operand]);
    for (size_t i = 0; i < instruction.results.size(); ++i) {
      const TensorType& type = instruction.results[i];
      Tensor& output = owned[instruction.first + i];
      values[instruction.first + i] = &output;
      output.type = type.type;
      output.shape = type.shape;
      Tensor& first = instruction.operands.empty() ? output : owned[instruction.operands[0]];
      if (instruction.in_place && !first.bytes.empty()) {  // not a constant, which is not owned
        // The kernel reads what it overwrites: both names for one place, element by element.
        output.bytes.swap(first.bytes);
        inputs[0] = &output;
      } else {
        output.bytes = recycler.Take(type.bytes());
      }
    }
    instruction.kernel.run(inputs, {owned.data() + instruction.first, instruction.results.size()});
    for (const uint32_t value : instruction.dead) {
      recycler.Give(std::exchange(owned[value].bytes, {}));
    }
  }
  return Returned(values, &owned);
}

// The values that are returned, out of those that a run owns where nobody else needs them.
std::vector<Tensor> Computation::Returned(const std::vector<const Tensor*>& values,
                                          std::vector<Tensor>* owned) const {
  std::vector<Tensor> results;
  for (size_t i = 0; i < returned_.size(); ++i) {
    const uint32_t value = returned_[i];
    const bool again = std::find(returned_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                 returned_.end(), value) != returned_.end();
    if (values[value] == &(*owned)[value] && !again) {
      results.push_back(std::move((*owned)[value]));
    } else {
      results.push_back(*values[value]);
    }
  }
  return results;
}

Memory Computation::memory(Module::Padding padding) const {
  const auto bytes = [&](const TensorType& type) {
    return padding == Module::Padding::kTiles ? type.tiled_bytes() : type.bytes();
  };
  Memory memory;
  for (const TensorType& type : arguments_) memory.arguments += bytes(type);
  for (const TensorType& type : results_) memory.outputs += bytes(type);
  std::vector<bool> outside(values_.size(), false);  // of arguments or outputs
  for (size_t i = 0; i < arguments_.size(); ++i) outside[i] = true;
  for (const uint32_t value : returned_) outside[value] = true;
  size_t live = 0;
  for (const Instruction& instruction : instructions_) {
    const bool taken_over = instruction.in_place && !outside[instruction.first];
    for (size_t i = 0; i < instruction.results.size(); ++i) {
      const size_t value = instruction.first + i;
      if (!outside[value] && !taken_over) live += bytes(values_[value]);
    }
    memory.temporary = std::max(memory.temporary, live);
    for (const uint32_t value : instruction.dead) {
      const bool stays = taken_over && value == instruction.operands[0];
      if (!outside[value] && !stays) live -= bytes(values_[value]);
    }
  }
  return memory;
}

}  // namespace ringmaster::testing::stablehlo
