#include "common/graph/layers/options.h"

#include <utility>

#include "common/text.h"

namespace ringmaster::graph::layers {
namespace {

constexpr size_t kLongestWord = 60;  // of somebody's, in an error

// The value that a choice is written with.
const v1::Attribute* MainOf(const v1::Choice& choice) {
  const bool one = choice.attributes_size() == 1 && choice.attributes(0).name().empty();
  return one ? &choice.attributes(0) : nullptr;
}

}  // namespace

std::string Describe(const v1::Attribute& attribute) {
  const auto quoted = [](const std::string& word) {
    return fmt::format("\"{}\"", OneLine(word, kLongestWord));
  };
  switch (attribute.value_case()) {
    case v1::Attribute::kI:
      return fmt::format("{}", attribute.i());
    case v1::Attribute::kF:
      return fmt::format("{}", attribute.f());
    case v1::Attribute::kB:
      return attribute.b() ? "true" : "false";
    case v1::Attribute::kS:
      return quoted(attribute.s());
    case v1::Attribute::kFact:
      return quoted(attribute.fact());
    case v1::Attribute::kInts:
      if (attribute.ints().values_size() > kMostNumbers) return "too many numbers";
      return fmt::format("[{}]", fmt::join(attribute.ints().values(), ", "));
    case v1::Attribute::kChoice: {
      const v1::Attribute* const value = MainOf(attribute.choice());
      const bool plain = value != nullptr && !value->has_choice();
      return fmt::format("{{{}: {}}}", OneLine(attribute.choice().name(), kLongestWord),
                         plain ? Describe(*value) : "...");
    }
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return "nothing";
}

Status UnknownOption(const std::string& option, const std::vector<FieldDescription>& options) {
  std::vector<std::string> names;
  for (const FieldDescription& known : options) names.push_back(known.name);
  const std::string unknown = fmt::format("unknown option \"{}\"; ", OneLine(option, kLongestWord));
  if (names.empty()) return InvalidArgument("{}it has no options", unknown);
  const std::string guess = Nearest(option, names);
  if (!guess.empty()) return InvalidArgument("{}did you mean \"{}\"?", unknown, guess);
  return InvalidArgument("{}its options are {}", unknown, fmt::join(names, ", "));
}

Status WrongOption(const FieldDescription& option, const std::string& got) {
  return InvalidArgument("{}: expected {}, got {}", option.name, ValueWords(option), got);
}

std::optional<std::vector<int64_t>> WholeNumbers(const v1::Attribute& attribute) {
  std::vector<int64_t> numbers;
  if (attribute.has_i()) {
    numbers = {attribute.i()};
  } else if (attribute.has_ints() && attribute.ints().values_size() <= kMostNumbers) {
    numbers.assign(attribute.ints().values().begin(), attribute.ints().values().end());
  } else {
    return std::nullopt;
  }
  if (!std::ranges::all_of(numbers, IsSmall)) return std::nullopt;
  return numbers;
}

bool Take(const v1::Attribute& attribute, Pair* value) {
  const auto numbers = WholeNumbers(attribute);
  if (!numbers || numbers->empty() || numbers->size() > 2) return false;
  *value = {numbers->front(), numbers->back()};
  return true;
}

bool Take(const v1::Attribute& attribute, std::optional<Pair>* value) {
  return Take(attribute, &value->emplace(1));
}

bool Take(const v1::Attribute& attribute, Padding* value) {
  if (attribute.has_s()) {
    *value = attribute.s() == "same" ? kSame : kValid;
    return attribute.s() == "same" || attribute.s() == "valid";
  }
  const auto numbers = WholeNumbers(attribute);
  if (!numbers) return false;
  const std::vector<int64_t>& n = *numbers;
  if (n.size() == 1) *value = Padding(n[0]);
  if (n.size() == 2) *value = Padding(n[0], n[1]);
  if (n.size() == 4) *value = Padding({n[0], n[1], n[2], n[3]});
  return n.size() == 1 || n.size() == 2 || n.size() == 4;
}

bool Take(const v1::Attribute& attribute, Initial* value) {
  const auto names = InitialNames();
  if (attribute.has_s()) {
    *value = attribute.s() == "ones" ? kOnes : kZeros;
    if (attribute.s() == "ones" || attribute.s() == "zeros") return true;
    for (size_t rule = kInitialsOfValue; rule < names.size(); ++rule) {
      *value = {static_cast<Initial::Rule>(rule)};
      if (attribute.s() == names[rule]) return true;
    }
    return false;
  }
  const v1::Attribute* const number = MainOf(attribute.choice());
  double scale = 0;
  if (number == nullptr || !Take(*number, &scale)) return false;
  for (size_t rule = 0; rule < kInitialsOfValue; ++rule) {
    *value = {static_cast<Initial::Rule>(rule), scale};
    if (attribute.choice().name() != names[rule]) continue;
    constexpr double kMost = std::numeric_limits<float>::max();
    return scale <= kMost && scale >= (rule == 0 ? -kMost : 0);
  }
  return false;
}

// Whether there is such an op, with such options, is for Activate to say.
bool Take(const v1::Attribute& attribute, Activation* value) {
  *value =
      Activation(attribute.has_s() ? attribute.s().c_str() : attribute.choice().name().c_str());
  value->options = attribute.choice().attributes();
  return attribute.has_s() || attribute.has_choice();
}

void Put(const Pair& value, v1::Attribute* attribute) {
  if (value.height == value.width) return attribute->set_i(value.height);
  attribute->mutable_ints()->add_values(value.height);
  attribute->mutable_ints()->add_values(value.width);
}

void Put(const std::optional<Pair>& value, v1::Attribute* attribute) {
  if (value) Put(*value, attribute);
}

void Put(const Padding& value, v1::Attribute* attribute) {
  const auto& numbers = value.numbers;
  if (value.kind != Padding::Kind::kNumbers) {
    attribute->set_s(ToText(value));
  } else if (std::ranges::count(numbers, numbers[0]) == 4) {
    attribute->set_i(numbers[0]);
  } else {
    attribute->mutable_ints()->mutable_values()->Assign(numbers.begin(), numbers.end());
  }
}

void Put(const Initial& value, v1::Attribute* attribute) {
  if (value == kZeros || value == kOnes || value.rule > Initial::Rule::kTruncatedNormal) {
    return attribute->set_s(ToText(value));
  }
  v1::Choice& choice = *attribute->mutable_choice();
  choice.set_name(InitialNames()[static_cast<size_t>(value.rule)]);
  choice.add_attributes()->set_f(value.value);
}

void Put(const Activation& value, v1::Attribute* attribute) {
  if (value.options.empty()) return attribute->set_s(value.op);
  attribute->mutable_choice()->set_name(value.op);
  *attribute->mutable_choice()->mutable_attributes() = value.options;
}

}  // namespace ringmaster::graph::layers
