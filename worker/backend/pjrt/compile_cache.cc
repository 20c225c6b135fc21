#include "worker/backend/pjrt/compile_cache.h"

#include <algorithm>
#include <utility>

#include "common/sha256.h"

namespace ringmaster::pjrt {
namespace {

constexpr size_t kKept = 16;
constexpr size_t kMaxEntries = 1024;  // names of programs, most of them gone

std::string KeyOf(size_t device, const std::string& text, std::span<const TensorType> results) {
  std::string head = fmt::format("{}\n", device);
  for (const TensorType& type : results) head += type.Text() + "\n";
  Sha256 hash;
  hash.Update(head.data(), head.size());
  hash.Update(text.data(), text.size());
  return Hex(hash.Finish());
}

}  // namespace

std::shared_ptr<CompileCache::Entry> CompileCache::Find(const std::string& key) {
  MutexLock lock(mu_);
  if (entries_.size() >= kMaxEntries) {
    std::erase_if(entries_, [](const auto& item) { return item.second.use_count() == 1; });
  }
  std::shared_ptr<Entry>& entry = entries_[key];
  if (entry == nullptr) entry = std::make_shared<Entry>();
  return entry;
}

void CompileCache::Keep(std::shared_ptr<const Compiled> compiled) {
  std::shared_ptr<const Compiled> oldest;  // ends outside of the lock
  MutexLock lock(mu_);
  std::erase(recent_, compiled);
  recent_.push_back(std::move(compiled));
  if (recent_.size() <= kKept) return;
  oldest = std::move(recent_.front());
  recent_.pop_front();
}

StatusOr<std::shared_ptr<const Compiled>> CompileCache::Get(size_t device, const std::string& text,
                                                            std::span<const TensorType> results) {
  const std::shared_ptr<Entry> entry = Find(KeyOf(device, text, results));
  MutexLock lock(entry->mu);
  std::shared_ptr<const Compiled> compiled = entry->compiled.lock();
  if (compiled == nullptr) {
    RING_ASSIGN_OR_RETURN(Compiled made, plugin_.Compile(device, text, results));
    compiled = std::make_shared<const Compiled>(std::move(made));
    entry->compiled = compiled;
  }
  Keep(compiled);
  return compiled;
}

}  // namespace ringmaster::pjrt
