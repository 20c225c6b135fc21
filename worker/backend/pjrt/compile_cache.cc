#include "worker/backend/pjrt/compile_cache.h"

#include <algorithm>
#include <utility>

#include "common/sha256.h"
#include "common/text.h"

namespace ringmaster::pjrt {
namespace {

constexpr size_t kKept = 16;
constexpr size_t kMaxTexts = 1024;  // names of texts, most of whose programs are gone

std::string KeyOf(const std::string& text, std::span<const TensorType> results) {
  std::string head;
  for (const TensorType& type : results) head += type.Text() + "\n";
  Sha256 hash;
  hash.Update(head.data(), head.size());
  hash.Update(text.data(), text.size());
  return Hex(hash.Finish());
}

}  // namespace

std::shared_ptr<CompileCache::Text> CompileCache::Find(const std::string& key) {
  MutexLock lock(mu_);
  if (texts_.size() >= kMaxTexts) {
    std::erase_if(texts_, [](const auto& item) { return item.second.use_count() == 1; });
  }
  std::shared_ptr<Text>& text = texts_[key];
  if (text == nullptr) text = std::make_shared<Text>(plugin_.facts().devices.size());
  return text;
}

void CompileCache::Keep(size_t device, std::shared_ptr<const Compiled> compiled) {
  std::shared_ptr<const Compiled> oldest;  // ends outside of the lock
  MutexLock lock(mu_);
  std::erase_if(recent_, [&](const Kept& kept) { return kept.compiled == compiled; });
  recent_.push_back({device, std::move(compiled)});
  if (recent_.size() <= kKept) return;
  oldest = std::move(recent_.front().compiled);
  recent_.pop_front();
}

size_t CompileCache::LetGo(size_t device) {
  std::vector<std::shared_ptr<const Compiled>> ended;  // outside of the lock
  {
    MutexLock lock(mu_);
    for (Kept& kept : recent_) {
      const bool unused = kept.device == device && kept.compiled.use_count() == 1;
      if (unused) ended.push_back(std::move(kept.compiled));
    }
    std::erase_if(recent_, [](const Kept& kept) { return kept.compiled == nullptr; });
  }
  if (!ended.empty()) {
    say_(fmt::format("device {} has no memory left: of the programs that it kept {} are let go",
                     device, ended.size()));
  }
  return ended.size();
}

CompileCache::Result CompileCache::Get(size_t device, const std::string& text,
                                       std::span<const TensorType> results) {
  const std::shared_ptr<Text> shared = Find(KeyOf(text, results));
  OnDevice& here = shared->on[device];
  MutexLock lock(here.mu);
  std::shared_ptr<const Compiled> compiled = here.compiled.lock();
  if (compiled == nullptr) {
    const Asked asked = {device, text, results};
    Result made = Make(asked, shared.get());
    if (absl::IsResourceExhausted(made.status()) && LetGo(device) > 0) {
      made = Make(asked, shared.get());
    }
    RING_ASSIGN_OR_RETURN(compiled, std::move(made));
    here.compiled = compiled;
  }
  {
    MutexLock shared_lock(shared->mu);
    shared->latest = compiled;  // which is kept longest
  }
  Keep(device, compiled);
  return compiled;
}

CompileCache::Result CompileCache::Make(const Asked& asked, Text* text) {
  if (!copies_) return Compile(asked);
  std::shared_ptr<const Compiled> other;
  {
    const uint64_t failures = text->failures;
    MutexLock lock(text->mu);
    other = text->latest.lock();
    if (other == nullptr) {
      if (text->failures != failures) return text->error;  // of whoever was waited for
      return CompileFirst(asked, text);
    }
  }
  auto copy = plugin_.compiler().CopyTo(asked.device, *other);
  if (copy.ok()) return std::make_shared<const Compiled>(*std::move(copy));
  // Of memory another device may have enough.
  if (absl::IsResourceExhausted(copy.status())) return copy.status();
  if (copies_.exchange(false)) {
    say_(
        fmt::format("each device compiles for itself, because what one has cannot be loaded on "
                    "another: {}",
                    OneLine(Message(copy.status()))));
  }
  return Compile(asked);
}

CompileCache::Result CompileCache::CompileFirst(const Asked& asked, Text* text) {
  Result made = Compile(asked);
  if (made.ok()) {
    text->latest = *made;
  } else {
    text->error = made.status();
    ++text->failures;
  }
  return made;
}

CompileCache::Result CompileCache::Compile(const Asked& asked) const {
  RING_ASSIGN_OR_RETURN(Compiled made,
                        plugin_.compiler().Compile(asked.device, asked.text, asked.results));
  return std::make_shared<const Compiled>(std::move(made));
}

}  // namespace ringmaster::pjrt
