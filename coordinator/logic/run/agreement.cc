#include "coordinator/logic/run/agreement.h"

#include <algorithm>

#include "common/planted_bug.h"
#include "common/sha256.h"

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
                            step, HexOf(a.value), a.worker, HexOf(b.value), b.worker);
}

std::string HexOf(const std::string& bytes) {
  return Hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
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
