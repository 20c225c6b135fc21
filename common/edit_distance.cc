#include "common/edit_distance.h"

#include <algorithm>

namespace ringmaster {
namespace {

constexpr size_t kLongest = 64;  // of what a user typed: nothing of ours is as long
constexpr size_t kShortWord = 4;

bool Begins(const std::string& word, const std::string& candidate) {
  return word.size() >= 2 &&
         (candidate.starts_with(word) || candidate.find('_' + word) != std::string::npos);
}

}  // namespace

size_t EditDistance(const std::string& a, const std::string& b) {
  // Rows are prefixes of `a`, columns prefixes of `b`.
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      const size_t replaced = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

std::string Nearest(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.size() > kLongest) return "";
  const size_t most = std::min<size_t>(word.size() <= kShortWord ? 1 : 2, word.size() / 3);
  std::string nearest;
  size_t fewest = most + 1;
  for (const std::string& candidate : candidates) {
    const size_t edits =
        Begins(word, candidate) ? std::min<size_t>(1, most) : EditDistance(word, candidate);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace ringmaster
