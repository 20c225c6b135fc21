#include "tests/common/exact/reference_case.h"

#include <stdlib.h>
#include <sys/wait.h>

#include <bit>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace ringmaster::exact {
namespace {

// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "exact_reference_XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Tensors in canonical order, as the script answers.
template <typename Append>
void ForEachTensor(const BlockLayout& layout, const Append& append) {
  for (uint32_t tensor = 0; tensor < layout.tensors().size(); ++tensor) {
    append(layout.tensor(tensor));
  }
}

template <typename Number>
std::string Decimals(const char* word, uint32_t tensor, std::span<const Number> numbers) {
  std::string line = fmt::format("{} {}", word, tensor);
  for (const Number number : numbers) line += fmt::format(" {}", number);
  return line + '\n';
}

std::string Floats(const std::string& words, std::span<const float> values) {
  std::string line = words;
  for (const float value : values) line += fmt::format(" {:08x}", std::bit_cast<uint32_t>(value));
  return line + '\n';
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::string Dump(const ReferenceCase& reference_case) {
  std::string text =
      fmt::format("precision {}\nscale {}\nshards {}\n", reference_case.units->precision_bits(),
                  reference_case.gradient_scale_exponent, reference_case.gradients.size());
  ForEachTensor(*reference_case.layout, [&](const TensorRange& tensor) {
    text +=
        Decimals("exponents", tensor.tensor,
                 reference_case.units->exponents().subspan(tensor.first_block, tensor.block_count));
    for (size_t shard = 0; shard < reference_case.gradients.size(); ++shard) {
      const std::span<const float> arena = reference_case.gradients[shard];
      text += Floats(fmt::format("gradient {} {}", shard, tensor.tensor),
                     arena.subspan(tensor.offset(), tensor.elements));
    }
  });
  return text;
}

std::string Text(const ReferenceAnswer& answer) {
  std::string text;
  for (size_t shard = 0; shard < answer.flags.size(); ++shard) {
    text += fmt::format("flag {} {}\n", shard, answer.flags[shard]);
  }
  ForEachTensor(*answer.layout, [&](const TensorRange& tensor) {
    text += Decimals("sum", tensor.tensor, answer.sums.subspan(tensor.offset(), tensor.elements));
    text += Floats(fmt::format("reduced {}", tensor.tensor),
                   answer.reduced.subspan(tensor.offset(), tensor.elements));
    text += Decimals("next", tensor.tensor,
                     answer.exponents.subspan(tensor.first_block, tensor.block_count));
  });
  return text;
}

StatusOr<std::string> AskReference(const std::string& dump) {
  const TemporaryFolder folder;
  if (folder.path().empty()) return Internal("no temporary folder for the reference sums");
  std::ofstream(folder.path() / "dump", std::ios::binary) << dump;
  const std::string command =
      fmt::format("/usr/bin/python3 -I -B '{0}' <'{1}/dump' >'{1}/answer' 2>'{1}/errors'",
                  RINGMASTER_REFERENCE_SUMS, folder.path().string());
  const int result = std::system(command.c_str());
  if (result == -1 || !WIFEXITED(result) || WEXITSTATUS(result) != 0) {
    return Internal("reference_sums.py ended with {}: {}", result,
                    ReadAll(folder.path() / "errors"));
  }
  return ReadAll(folder.path() / "answer");
}

}  // namespace ringmaster::exact
