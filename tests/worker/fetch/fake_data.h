// A dataset in memory, and a source that serves it as a test says. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "worker/fetch/data_list.h"
#include "worker/fetch/piece_source.h"

namespace ringmaster::worker {

using FakeFiles = std::map<std::string, std::string>;  // name -> content

// Of so many bytes, of which no two pieces are equal.
inline std::string Content(size_t bytes, char seed) {
  std::string content(bytes, seed);
  for (size_t i = 0; i < bytes; i += 4096) content[i] = static_cast<char>(i / 4096 * 31 + seed);
  for (size_t i = 0; i < bytes; i += kPieceBytes)
    content[i] = static_cast<char>(i / kPieceBytes + seed);
  return content;
}

inline std::vector<Sha256Digest> PiecesOf(const std::string& content) {
  std::vector<Sha256Digest> pieces;
  for (size_t at = 0; at < content.size(); at += kPieceBytes) {
    pieces.push_back(Sha256Of(content.substr(at, kPieceBytes)));
  }
  return pieces;
}

inline DataList ListOf(const FakeFiles& files, const std::string& path = "data") {
  DataList list{path, {}, ""};
  for (const auto& [name, content] : files) {
    list.files.push_back({name, content.size(), PiecesOf(content), ""});
  }
  return list;
}

class FakeSource : public PieceSource {
 public:
  FakeSource(std::string name, FakeFiles files)
      : name_(std::move(name)), files_(std::move(files)), list_(ListOf(files_).files) {}

  // What a Read does before it answers: an error ends it, and `bytes` may be changed.
  using Hook = std::function<Status(const SourceFile&, uint64_t offset, std::span<uint8_t> bytes,
                                    const FetchLimits& limits)>;
  void OnRead(Hook hook) { hook_ = std::move(hook); }
  void OnList(std::function<StatusOr<std::vector<SourceFile>>()> list) {
    on_list_ = std::move(list);
  }

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] StatusOr<std::vector<SourceFile>> List(const FetchLimits&) override {
    {
      MutexLock lock(mu_);
      ++lists_;
    }
    return on_list_ ? on_list_() : list_;
  }
  [[nodiscard]] Status Read(const SourceFile& file, uint64_t offset, std::span<uint8_t> out,
                            const FetchLimits& limits) override {
    {
      MutexLock lock(mu_);
      ++reads_;
      most_at_a_time_ = std::max(most_at_a_time_, ++now_);
    }
    const std::string& content = files_.at(file.name);
    std::copy_n(content.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
    Status status = hook_ ? hook_(file, offset, out, limits) : absl::OkStatus();
    MutexLock lock(mu_);
    --now_;
    return status;
  }

  [[nodiscard]] int lists() const {
    MutexLock lock(mu_);
    return lists_;
  }
  [[nodiscard]] int reads() const {
    MutexLock lock(mu_);
    return reads_;
  }
  [[nodiscard]] int most_at_a_time() const {
    MutexLock lock(mu_);
    return most_at_a_time_;
  }

 private:
  const std::string name_;
  const FakeFiles files_;
  const std::vector<SourceFile> list_;
  Hook hook_;
  std::function<StatusOr<std::vector<SourceFile>>()> on_list_;
  mutable Mutex mu_;
  int lists_ ABSL_GUARDED_BY(mu_) = 0, reads_ ABSL_GUARDED_BY(mu_) = 0;
  int now_ ABSL_GUARDED_BY(mu_) = 0, most_at_a_time_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ringmaster::worker
