#include "coordinator/logic/run/agreement.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "common/planted_bug.h"
#include "common/sha256.h"
#include "common/text.h"

namespace ringmaster::coordinator {
namespace {

std::string Describe(const v1::DataFile& file) {
  return fmt::format("{} samples in {} bytes with SHA-256 {}", file.samples(), file.bytes(),
                     file.sha256());
}

bool Equal(const v1::DataFile& a, const v1::DataFile& b) {
  return a.bytes() == b.bytes() && a.samples() == b.samples() && a.sha256() == b.sha256();
}

std::string DescribeIndex(const v1::DatasetFacts& facts) {
  return fmt::format("{} training and {} test samples, {} bytes in {} files, index SHA-256 {}",
                     facts.train_samples(), facts.test_samples(), facts.index().bytes(),
                     facts.index().files(), facts.index().sha256());
}

Status OnlyOn(const std::string& has, const std::string& lacks, const v1::DataFile& file) {
  return FailedPrecondition(
      "the dataset differs: worker {} has a file {} that worker {} has not; give both the same "
      "copy",
      has, file.name(), lacks);
}

}  // namespace

Status SameDataset(Claim<v1::DatasetFacts> a, Claim<v1::DatasetFacts> b) {
  const int files = std::max(a.value.files_size(), b.value.files_size());
  for (int i = 0; i < files; ++i) {  // both sorted by name
    if (i >= b.value.files_size()) return OnlyOn(a.worker, b.worker, a.value.files(i));
    if (i >= a.value.files_size()) return OnlyOn(b.worker, a.worker, b.value.files(i));
    const v1::DataFile& left = a.value.files(i);
    const v1::DataFile& right = b.value.files(i);
    if (left.name() < right.name()) return OnlyOn(a.worker, b.worker, left);
    if (right.name() < left.name()) return OnlyOn(b.worker, a.worker, right);
    if (!Equal(left, right)) {
      return FailedPrecondition(
          "the dataset differs: file {} is {} on worker {}, but {} on worker {}; give both the "
          "same "
          "copy",
          left.name(), Describe(left), a.worker, Describe(right), b.worker);
    }
  }
  if (a.value.index().sha256() != b.value.index().sha256()) {
    return FailedPrecondition(
        "the dataset differs: worker {} has {}, but worker {} has {}; give both the same copy",
        a.worker, DescribeIndex(a.value), b.worker, DescribeIndex(b.value));
  }
  if (a.value.SerializeAsString() != b.value.SerializeAsString()) {
    return FailedPrecondition(
        "the dataset differs: worker {} reads it as {{{}}}, worker {} as {{{}}}", a.worker,
        a.value.ShortDebugString(), b.worker, b.value.ShortDebugString());
  }
  return absl::OkStatus();
}

// ---- scripts ------------------------------------------------------------------------------------

namespace {

struct LibraryAdvice {
  std::string_view name, advice;
};
// The rest is installed.
constexpr std::array kLibraryAdvice = {
    LibraryAdvice{"blas_core", "script.env: {OPENBLAS_CORETYPE: Haswell} makes it the same"},
    LibraryAdvice{"aten", "script.env: {ATEN_CPU_CAPABILITY: avx2} makes it the same"},
    LibraryAdvice{"threads", "start both with the same --threads-per-core"},
};

// One thing that both of them say.
struct Point {
  std::string what;  // `torch is`
  std::string a, b;
  std::string advice;
};

Status Differs(const std::string& a, const std::string& b, const Point& point) {
  constexpr size_t kMostShown = 300;  // bytes
  return FailedPrecondition("the script differs: {} {} on worker {}, {} on worker {}; {}",
                            OneLine(point.what, kMaxNameText), OneLine(point.a, kMostShown), a,
                            OneLine(point.b, kMostShown), b, point.advice);
}

using Texts = google::protobuf::Map<std::string, std::string>;

// The first name that they have otherwise, by name; null: none.
const std::string* FirstDifference(const Texts& a, const Texts& b) {
  const std::string* first = nullptr;
  const auto look = [&first](const Texts& from, const Texts& in) {
    for (const auto& [name, value] : from) {
      const auto found = in.find(name);
      const bool differs = found == in.end() || found->second != value;
      if (differs && (first == nullptr || name < *first)) first = &name;
    }
  };
  look(a, b);
  look(b, a);
  return first;
}

std::string ValueOf(const Texts& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "absent" : found->second;
}

Point DifferentLibrary(const Texts& a, const Texts& b, const std::string& name) {
  const auto known = std::ranges::find(kLibraryAdvice, name, &LibraryAdvice::name);
  return {name + " is", ValueOf(a, name), ValueOf(b, name),
          known != kLibraryAdvice.end()
              ? std::string(known->advice)
              : "install the same on both, or name an interpreter that has it: script.python"};
}

// `fc.weight (10, 64), a buffer of group 1`
std::string Describe(const v1::ScriptTensor& tensor) {
  std::string text = fmt::format("{} ({})", tensor.name(), fmt::join(tensor.shape(), ", "));
  if (tensor.role() == v1::BUFFER) text += ", a buffer";
  if (tensor.group() > 0) text += fmt::format(" of group {}", tensor.group());
  return text;
}

constexpr const char* kSameModel = "what makes the model must not depend on the host";

std::optional<Point> DifferentTensor(const v1::ScriptFacts& a, const v1::ScriptFacts& b) {
  const auto at = [](const v1::ScriptFacts& facts, int i) {
    return i < facts.tensors_size() ? Describe(facts.tensors(i)) : "absent";
  };
  for (int i = 0; i < std::max(a.tensors_size(), b.tensors_size()); ++i) {
    if (at(a, i) == at(b, i)) continue;
    return Point{fmt::format("tensor {} is", i), at(a, i), at(b, i), kSameModel};
  }
  return std::nullopt;
}

// What a script says as one text each, in the order in which a difference is told.
std::vector<Point> PointsOf(const v1::ScriptFacts& a, const v1::ScriptFacts& b,
                            Libraries libraries) {
  std::vector<Point> points;
  const auto add = [&](const char* what, const auto& say, const char* advice) {
    points.push_back({what, say(a), say(b), advice});
  };
  using Facts = const v1::ScriptFacts&;
  const auto number = [](uint64_t value) { return fmt::format("{}", value); };
  add(
      "counters are", [](Facts f) { return fmt::format("{}", fmt::join(f.counters(), ", ")); },
      kSameModel);
  add(
      "counters begin with",
      [](Facts f) { return fmt::format("{}", fmt::join(f.counter_starts(), ", ")); }, kSameModel);
  add(
      "groups of parameters decay by",
      [](Facts f) {
        std::vector<double> decays;
        for (const v1::ScriptGroup& group : f.groups()) decays.push_back(group.weight_decay());
        return fmt::format("{}", fmt::join(decays, ", "));
      },
      kSameModel);
  add(
      "the optimizer is", [](Facts f) { return f.optimizer().ShortDebugString(); }, kSameModel);
  add(
      "metrics are", [](Facts f) { return fmt::format("{}", fmt::join(f.metrics(), ", ")); },
      kSameModel);
  add(
      "samples of the dataset are", [&](Facts f) { return number(f.samples()); },
      "give both the same copy of the data");
  constexpr const char* kTold = "what attach is told must not depend on the host";
  add(
      "attach was told batch", [&](Facts f) { return number(f.batch()); }, kTold);
  add(
      "attach was told shards", [&](Facts f) { return number(f.shards()); }, kTold);
  add(
      "attach was told steps", [&](Facts f) { return number(f.steps()); }, kTold);
  add(
      "attach was told epochs", [&](Facts f) { return number(f.epochs()); }, kTold);
  add(
      "attach was told seed", [&](Facts f) { return number(f.seed()); }, kTold);
  if (libraries == Libraries::kEqual) {  // else libraries draw them, too
    add(
        "the first values have SHA-256", [](Facts f) { return f.initial_sha256(); },
        "seed before the model is made: torch.manual_seed(0); or load the same file on both");
  }
  add(
      "what never changes (frozen parameters, constant buffers) has SHA-256",
      [](Facts f) { return f.frozen_sha256(); },
      "load the same file on both, or seed before the model is made");
  return points;
}

}  // namespace

Status SameScript(Claim<v1::ScriptFacts> a, Claim<v1::ScriptFacts> b, Libraries libraries) {
  const auto differ = [&](const Point& point) { return Differs(a.worker, b.worker, point); };
  const Texts &here = a.value.libraries(), &there = b.value.libraries();
  const std::string* library =
      libraries == Libraries::kEqual ? FirstDifference(here, there) : nullptr;
  if (library != nullptr) return differ(DifferentLibrary(here, there, *library));
  if (const auto tensor = DifferentTensor(a.value, b.value)) return differ(*tensor);
  const Texts &names = a.value.aliases(), &others = b.value.aliases();
  if (const std::string* const name = FirstDifference(names, others)) {
    return differ(
        {*name + " is tied to", ValueOf(names, *name), ValueOf(others, *name), kSameModel});
  }
  for (const Point& point : PointsOf(a.value, b.value, libraries)) {
    if (point.a != point.b) return differ(point);
  }
  return absl::OkStatus();
}

Status SameKnownShard(const v1::KnownShard& expected, Claim<v1::Prepared> b) {
  for (int core = 0; core < b.value.known_shard_sha256_size(); ++core) {
    if (b.value.known_shard_sha256(core) == expected.sha256()) continue;
    return FailedPrecondition(
        "the same shard gave other integers: worker {} had {}, core {} of worker {} has "
        "{}; "
        "these workers do not compute equal bits",
        expected.worker(), expected.sha256(), core, b.worker, b.value.known_shard_sha256(core));
  }
  return SameDigest(0, {expected.worker(), expected.digest()}, {b.worker, b.value.digest()});
}

Status SameDigest(uint64_t step, Claim<std::string> a, Claim<std::string> b) {
  if (a.value == b.value) return absl::OkStatus();
  return FailedPrecondition("the state differs: digest({}) is {} on worker {}, but {} on worker {}",
                            step, Hex(a.value), a.worker, Hex(b.value), b.worker);
}

Status StateDigests::Add(uint64_t step, const std::string& worker, const std::string& digest) {
  const auto [place, fresh] = said_.try_emplace(step, Said{worker, {}});
  Said& said = place->second;
  said.digests[worker] = digest;
  if (!fresh) {
    return SameDigest(step, {said.first, said.digests.at(said.first)}, {worker, digest});
  }
  order_.push_back(step);
  if (RING_PLANTED(kDigestsBlind) && said_.size() > 64) said_.erase(said_.begin());
  if (order_.size() > kMost) {
    said_.erase(order_.front());
    order_.pop_front();
  }
  return absl::OkStatus();
}

std::vector<std::string> StateDigests::Said::Minority() const {
  std::map<std::string, size_t> votes;
  for (const auto& [worker, digest] : digests) ++votes[digest];
  const auto most =
      std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  std::vector<std::string> others;
  if (digests.size() < 3 || 2 * most->second <= digests.size()) return others;
  for (const auto& [worker, digest] : digests) {
    if (digest != most->first) others.push_back(worker);
  }
  return others;
}

std::vector<std::string> StateDigests::Minority() const {
  std::vector<std::string> named;
  size_t voters = 0;
  for (const auto& [step, said] : said_) {
    std::vector<std::string> others = said.Minority();
    if (others.empty() || said.digests.size() < voters) continue;
    voters = said.digests.size();
    named = std::move(others);
  }
  return named;
}

uint64_t StateDigests::AgreedBefore(uint64_t step) const {
  for (auto place = said_.lower_bound(step); place != said_.begin();) {
    const std::map<std::string, std::string>& digests = (--place)->second.digests;
    const bool same = std::ranges::all_of(
        digests, [&](const auto& said) { return said.second == digests.begin()->second; });
    if (digests.size() >= 2 && same) return place->first;
  }
  return 0;
}

void StateDigests::GoOnFrom(uint64_t step) {
  if (RING_PLANTED(kDigestsBlind)) return;
  said_.erase(said_.upper_bound(step), said_.end());
  std::erase_if(order_, [step](uint64_t known) { return known > step; });
}

}  // namespace ringmaster::coordinator
