// ringctl keys [KEY...]: what a job file may say. Asks no coordinator.
#include <algorithm>

#include "cli/commands/commands.h"
#include "common/job/keys.h"
#include "common/text.h"

namespace ringmaster::cli {
namespace {

// `word` and, of a mapping, all that stands in it. NOT_FOUND names the key that was probably meant.
Status AddKeysOf(const std::string& word, std::vector<job::Key>* chosen) {
  const std::vector<job::Key> all = job::Keys();
  std::vector<std::string> paths;
  for (const job::Key& key : all) {
    paths.push_back(key.path);
    if (key.path == word || key.path.starts_with(word + '.')) chosen->push_back(key);
  }
  if (std::ranges::count(paths, word) > 0) return absl::OkStatus();
  const std::string guess = Nearest(word, paths);
  return InvalidArgument(
      "no key of a job file is called \"{}\"{}", word,
      guess.empty() ? "; `ringctl keys` lists them" : fmt::format("; did you mean {}?", guess));
}

Json KeysJson(const std::vector<job::Key>& keys) {
  Json list = Json::array();
  for (const job::Key& key : keys) {
    list.push_back({{"key", key.path},
                    {"type", key.type},
                    {"limits", Known(!key.limits.empty(), key.limits)},
                    {"default", Known(!key.by_default.empty(), key.by_default)},
                    {"required", key.required},
                    {"help", key.help}});
  }
  return Json{{"keys", list}};
}

std::string RenderKeys(const std::vector<job::Key>& keys, const Terminal& terminal) {
  Table table({"KEY", "VALUE", "DEFAULT", "WHAT IT IS"});
  for (const job::Key& key : keys) {
    table.Add({key.path, job::ValueWords(key), job::DefaultWords(key), key.help});
  }
  return table.Print(terminal);
}

StatusOr<ExitCode> ShowKeys(const Common& common, const std::vector<std::string>& words) {
  std::vector<job::Key> keys;
  if (words.empty()) keys = job::Keys();
  for (const std::string& word : words) RING_RETURN_IF_ERROR(AddKeysOf(word, &keys));
  Print(common.json() ? KeysJson(keys).dump(2) + "\n" : RenderKeys(keys, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddKeys(CommandLine& line) {
  const auto words = std::make_shared<std::vector<std::string>>();
  line.Add("keys", "list the keys of a job file: values, default, what each is",
           Examples("ringctl keys", "ringctl keys checkpoint optimizer.adam"),
           [&line, words] { return ShowKeys(line.common(), *words); })
      ->add_option("KEY", *words, "only these, and what stands in them; default: all");
}

}  // namespace ringmaster::cli
