#include "common/job/class_map.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "common/check.h"
#include "common/sha256.h"

namespace ringmaster::job {
namespace {

constexpr size_t kNameDigits = 8;  // of a hash; there are few classes

// Every field, the libraries in order of name.
std::string AllOf(const v1::NumericsClass& numerics) {
  const std::map<std::string, std::string> libraries(numerics.libraries().begin(),
                                                     numerics.libraries().end());
  std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", numerics.backend(), numerics.device_model(),
                  fmt::join(numerics.cache_bytes(), "/"), numerics.instruction_set(),
                  numerics.threads_per_core(), numerics.compute_id());
  for (const auto& [name, version] : libraries) text += fmt::format("{}={}\n", name, version);
  return text;
}

// As a key of a job file that needs no quotes.
std::string Plain(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    plain += std::isalnum(byte) != 0 || c == '_' ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return plain.substr(0, 40);
}

// Whole parts in proportion to `speeds`, by largest remainder (ties: the first), each at least 1.
std::vector<uint32_t> Divide(uint32_t shards, const std::vector<double>& speeds) {
  double total = 0;
  for (const double speed : speeds) total += speed;
  std::vector<uint32_t> parts(speeds.size());
  std::vector<std::pair<double, size_t>> remainders;
  uint32_t given = 0;
  for (size_t i = 0; i < speeds.size(); ++i) {
    const double part = shards * (speeds[i] / total);
    parts[i] = std::max(1U, static_cast<uint32_t>(part));
    given += parts[i];
    remainders.emplace_back(part - parts[i], i);
  }
  std::ranges::stable_sort(remainders,
                           [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t next = 0; given < shards; ++given) ++parts[remainders[next++ % parts.size()].second];
  while (given > shards) {  // rounding of a part that is all but one
    --*std::ranges::max_element(parts);
    --given;
  }
  return parts;
}

}  // namespace

std::string Difference(const v1::NumericsClass& a, const v1::NumericsClass& b) {
  const auto differ = [](const char* field, const auto& x, const auto& y) {
    return x == y ? std::string() : fmt::format("{}: {} and {}", field, x, y);
  };
  const auto caches = [](const v1::NumericsClass& c) {
    return fmt::format("{}", fmt::join(c.cache_bytes(), "/"));
  };
  std::vector<std::string> found = {
      differ("backend", a.backend(), b.backend()),
      differ("device_model", a.device_model(), b.device_model()),
      differ("cache_bytes", caches(a), caches(b)),
      differ("instruction_set", a.instruction_set(), b.instruction_set()),
      differ("threads_per_core", a.threads_per_core(), b.threads_per_core()),
      differ("compute_id", a.compute_id(), b.compute_id()),
  };
  // Both ways, so that a library that only one side has is found; in order of name.
  std::vector<std::string> names;
  for (const auto* side : {&a, &b}) {
    for (const auto& [name, version] : side->libraries()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  const auto version = [](const v1::NumericsClass& c, const std::string& name) {
    const auto at = c.libraries().find(name);
    return at == c.libraries().end() ? std::string("none") : at->second;
  };
  for (const std::string& name : names) {
    found.push_back(
        differ(fmt::format("library {}", name).c_str(), version(a, name), version(b, name)));
  }
  const auto first = std::find_if(found.begin(), found.end(),
                                  [](const std::string& text) { return !text.empty(); });
  return first == found.end() ? "" : *first;
}

std::string ClassName(const v1::NumericsClass& numerics) {
  return fmt::format("{}-{}-{}", Plain(numerics.backend()), Plain(numerics.instruction_set()),
                     Hex(Sha256Of(AllOf(numerics))).substr(0, kNameDigits));
}

std::string TextOf(const v1::ClassMap& map) {
  std::string text =
      fmt::format("from {}{}:", map.step(), map.before_evaluation() ? ", evaluated by it" : "");
  for (const v1::MappedClass& each : map.classes()) {
    text += fmt::format(" {} {}", each.class_(), each.shards());
  }
  return text;
}

std::string TextOf(const ClassMaps& maps, uint64_t before) {
  std::string text;
  for (const v1::ClassMap& map : maps) {
    if (map.step() < before) text += TextOf(map) + "; ";
  }
  return text;
}

bool LedAlike(const ClassMaps& a, const ClassMaps& b, uint64_t step) {
  return TextOf(a, step) == TextOf(b, step);
}

const v1::ClassMap& NewestMap(const v1::ResultSpec& result) {
  RING_CHECK(!result.class_maps().empty(), "a resolved job has a class map");
  return result.class_maps(result.class_maps_size() - 1);
}

int MapOf(const v1::ResultSpec& result, uint64_t step, bool evaluated) {
  int index = 0;
  for (int i = 1; i < result.class_maps_size(); ++i) {
    const v1::ClassMap& map = result.class_maps(i);
    if (map.step() < step || (map.step() == step && (evaluated || map.before_evaluation()))) {
      index = i;
    }
  }
  return index;
}

const v1::MappedClass* FindClass(const v1::ClassMap& map, const v1::NumericsClass& numerics) {
  const auto found = std::ranges::find_if(map.classes(), [&](const v1::MappedClass& each) {
    return Difference(each.numerics(), numerics).empty();
  });
  return found == map.classes().end() ? nullptr : &*found;
}

Range ShardsOfClass(const v1::ClassMap& map, const std::string& name) {
  uint64_t begin = 0;
  for (const v1::MappedClass& each : map.classes()) {
    if (each.class_() == name) return {begin, begin + each.shards()};
    begin += each.shards();
  }
  RING_CHECK(false, "the map has no such class");
  return {};
}

v1::ClassMap MakeClassMap(uint32_t shards, std::vector<ClassSpeed> classes,
                          std::vector<std::string>* left_out) {
  const auto name = [](const ClassSpeed& each) { return ClassName(each.numerics); };
  std::ranges::sort(classes, {}, name);
  while (left_out != nullptr && classes.size() > 1) {
    double total = 0;
    for (const ClassSpeed& each : classes) total += each.shards_per_second();
    const auto slowest = std::ranges::min_element(classes, {}, &ClassSpeed::shards_per_second);
    if (shards * slowest->shards_per_second() >= total) break;
    left_out->push_back(name(*slowest));
    classes.erase(slowest);
  }
  if (left_out != nullptr) std::ranges::sort(*left_out);
  std::vector<double> speeds;
  for (const ClassSpeed& each : classes) speeds.push_back(each.shards_per_second());
  const std::vector<uint32_t> parts = Divide(shards, speeds);
  v1::ClassMap map;
  map.set_before_evaluation(true);
  for (size_t i = 0; i < classes.size(); ++i) {
    v1::MappedClass& each = *map.add_classes();
    each.set_class_(name(classes[i]));
    *each.mutable_numerics() = classes[i].numerics;
    each.set_shards(parts[i]);
  }
  return map;
}

v1::ClassMap OneClass(uint32_t shards, const v1::NumericsClass& numerics) {
  return MakeClassMap(shards, {{.numerics = numerics}}, nullptr);
}

}  // namespace ringmaster::job
