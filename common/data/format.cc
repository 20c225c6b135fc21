#include "common/data/format.h"

#include <fmt/ranges.h>

#include "common/data/cifar10.h"
#include "common/data/cifar100.h"
#include "common/data/mnist.h"

namespace ringmaster::data {

const std::vector<const Format*>& Formats() {
  static const std::vector<const Format*> formats = {&Cifar10(), &Cifar100(), &Mnist()};
  return formats;
}

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const Format* format : Formats()) names.push_back(format->name);
  return names;
}

StatusOr<const Format*> FindFormat(const std::string& name) {
  for (const Format* format : Formats()) {
    if (format->name == name) return format;
  }
  return InvalidArgument("format \"{}\" is not known; known: {}", name,
                         fmt::join(FormatNames(), ", "));
}

bool Matches(const FileKind& kind, const std::string& name) {
  const size_t star = kind.name.find('*');
  if (star == std::string::npos) return name == kind.name;
  return name.size() >= kind.name.size() && name.starts_with(kind.name.substr(0, star)) &&
         name.ends_with(kind.name.substr(star + 1));
}

}  // namespace ringmaster::data
