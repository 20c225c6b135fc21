#include "worker/backend/cuda/libraries/plan_store.h"

#include <spdlog/spdlog.h>

#include <charconv>
#include <filesystem>
#include <utility>

#include "common/files.h"
#include "common/sha256.h"

namespace ringmaster::cuda {
namespace {

constexpr char kFirstLine[] = "ringmaster plans 1";

// A line up to its end, or `size` bytes and the end of a line, from the beginning of `rest`.
StatusOr<std::string> TakeLine(std::string_view* rest) {
  const size_t end = rest->find('\n');
  if (end == std::string_view::npos) return InvalidArgument("it ends within a line");
  std::string line(rest->substr(0, end));
  rest->remove_prefix(end + 1);
  return line;
}

StatusOr<std::string> TakeBytes(size_t size, std::string_view* rest) {
  if (rest->size() <= size || (*rest)[size] != '\n')
    return InvalidArgument("it ends within a plan");
  std::string bytes(rest->substr(0, size));
  rest->remove_prefix(size + 1);
  return bytes;
}

StatusOr<size_t> SizeOf(const std::string& line) {
  size_t size = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), size);
  if (error == std::errc() && end == line.data() + line.size()) return size;
  return InvalidArgument("`{}` is no size", line);
}

std::string Print(const std::string& key, const StoredPlan& plan) {
  return fmt::format("{}\n{}\n{}\n{}\n", key, ToString(PlanChoice(plan.choice)),
                     plan.written.size(), plan.written);
}

}  // namespace

std::unique_ptr<PlanStore> PlanStore::Open(std::string path, std::string identity,
                                           size_t most_bytes) {
  std::unique_ptr<PlanStore> store(new PlanStore(std::move(path), std::move(identity), most_bytes));
  std::error_code ignored;
  if (!std::filesystem::exists(store->path_, ignored)) return store;
  const auto rows = [&]() -> StatusOr<Rows> {
    RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("plans", store->path_));
    return store->Parse(text);
  }();
  if (!rows.ok()) {
    spdlog::info("plans of an earlier run are made anew: {}: {}", store->path_,
                 Message(rows.status()));
    return store;
  }
  const MutexLock lock(store->mu_);
  store->rows_ = *rows;
  return store;
}

StatusOr<PlanStore::Rows> PlanStore::Parse(const std::string& text) const {
  std::string_view rest = text;
  RING_ASSIGN_OR_RETURN(const std::string first, TakeLine(&rest));
  if (first != kFirstLine) return InvalidArgument("it does not begin with `{}`", kFirstLine);
  RING_ASSIGN_OR_RETURN(const std::string identity, TakeLine(&rest));
  if (identity != identity_) {
    return FailedPrecondition("they are of `{}`, this is `{}`", identity, identity_);
  }
  RING_ASSIGN_OR_RETURN(const std::string digest, TakeLine(&rest));
  if (digest != Hex(Sha256Of(std::string(rest)))) return InvalidArgument("it is damaged");
  Rows rows;
  while (!rest.empty()) {
    RING_ASSIGN_OR_RETURN(const std::string key, TakeLine(&rest));
    RING_ASSIGN_OR_RETURN(const std::string choice_line, TakeLine(&rest));
    RING_ASSIGN_OR_RETURN(const PlanChoice choice, ParseChoice(choice_line));
    const auto* const convolution = std::get_if<ConvolutionChoice>(&choice);
    if (convolution == nullptr) return InvalidArgument("`{}` is no convolution's", choice_line);
    RING_ASSIGN_OR_RETURN(const std::string size_line, TakeLine(&rest));
    RING_ASSIGN_OR_RETURN(const size_t size, SizeOf(size_line));
    RING_ASSIGN_OR_RETURN(std::string written, TakeBytes(size, &rest));
    rows[key] = {{*convolution, std::move(written)}, false};
  }
  return rows;
}

std::optional<StoredPlan> PlanStore::Find(const std::string& key) {
  const MutexLock lock(mu_);
  const auto found = rows_.find(key);
  if (found == rows_.end()) return std::nullopt;
  found->second.used = true;
  return found->second.plan;
}

void PlanStore::Put(const std::string& key, StoredPlan plan) {
  const MutexLock lock(mu_);
  rows_[key] = {std::move(plan), true};
  changed_ = true;
}

Status PlanStore::Save() {
  std::string rows;
  {
    const MutexLock lock(mu_);
    if (!changed_) return absl::OkStatus();
    changed_ = false;
    size_t bytes = 0;
    for (const auto& [key, row] : rows_) bytes += Print(key, row.plan).size();
    if (bytes > most_bytes_) std::erase_if(rows_, [](const auto& row) { return !row.second.used; });
    for (const auto& [key, row] : rows_) {
      const std::string text = Print(key, row.plan);
      if (rows.size() + text.size() <= most_bytes_) rows += text;
    }
  }
  return WriteDurably(
      path_, fmt::format("{}\n{}\n{}\n{}", kFirstLine, identity_, Hex(Sha256Of(rows)), rows));
}

}  // namespace ringmaster::cuda
