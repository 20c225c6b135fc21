#include "cli/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <CLI/CLI.hpp>

#include "cli/complaint.h"
#include "cli/context.h"
#include "common/build_id.h"
#include "common/text.h"

namespace ringmaster::cli {
namespace {

constexpr char kFooter[] =
    "\nExit codes: 0 ok, 1 anything else, 2 usage or job file, 3 job failed, 4 job cancelled,\n"
    "5 coordinator unreachable, 124 timed out.";

// CLI11 reads -1 as the largest unsigned number: an option for one must not have a sign. It is
// known by the name of its type, which such an option therefore keeps.
void RefuseSigns(CLI::App* app) {
  const CLI::Validator no_sign(
      [](std::string& text) {
        return text.starts_with('-') ? "expected a number that is not negative, got " + text
                                     : std::string();
      },
      "");
  for (CLI::Option* const option : app->get_options()) {
    if (option->get_type_name() == "UINT") option->check(no_sign);
  }
  for (CLI::App* const command : app->get_subcommands({})) RefuseSigns(command);
}

}  // namespace

std::vector<std::string> LongOptions(const CLI::App& command) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  return options;
}

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Say(const std::string& message) {
  // Lines are ours: what others say was made one where it came in.
  std::vector<std::string> lines = absl::StrSplit(message, '\n');
  for (std::string& line : lines) line = OneLine(line, std::string::npos);
  std::fprintf(stderr, "ringctl: %s\n", absl::StrJoin(lines, "\n").c_str());
}

Examples::Examples(std::string first, std::string second, std::string third) {
  for (std::string* const line : {&first, &second, &third}) {
    if (!line->empty()) lines.push_back(std::move(*line));
  }
}

CLI::Option* AddJob(CLI::App* command, std::string* job) {
  return command->add_option("JOB", *job, "id of the job; last is the newest")->required();
}

CLI::Option* AddJobs(CLI::App* command, std::vector<std::string>* jobs) {
  return command->add_option("JOB", *jobs, "ids of jobs; last is the newest")
      ->type_name("")
      ->required();
}

CLI::Option* OneOf(CLI::Option* option, const std::vector<std::string>& values) {
  const std::string names = absl::StrJoin(values, "|");
  const auto check = [values](std::string& text) -> std::string {
    if (std::find(values.begin(), values.end(), text) != values.end()) return "";
    const std::string guess = Nearest(text, values);
    return fmt::format("expected {}, got {}{}", absl::StrJoin(values, ", "), text,
                       guess.empty() ? "" : fmt::format("; did you mean {}?", guess));
  };
  return option->type_name(names)->check(CLI::Validator(check, ""));
}

CommandLine::CommandLine() : app_("Submits and watches training jobs of a Ringmaster cluster") {
  app_.name("ringctl");
  app_.require_subcommand(1);
  app_.footer(kFooter);
  app_.set_version_flag("--version", VersionLine("ringctl"),
                        "print version, build and compute id, then end");
  common_.coordinator = DefaultCoordinator();
  AddCommonOptions(&app_);
}

void CommandLine::AddCommonOptions(CLI::App* app) {
  app->add_option("--coordinator", common_.coordinator,
                  "where the coordinator is, or unix:PATH; also RINGMASTER_COORDINATOR")
      ->type_name("HOST:PORT")
      ->default_str(common_.coordinator);
  AddOutput(app, {"table", "json"}, "what stdout is: table, or json for programs");
}

void CommandLine::AddOutput(CLI::App* app, const std::vector<std::string>& formats,
                            const std::string& help) {
  CLI::Option* const output = app->add_option_function<std::string>(
      "-o,--output",
      [this](const std::string& name) {
        common_.output = name == "json"   ? Output::kJson
                         : name == "yaml" ? Output::kYaml
                         : name == "csv"  ? Output::kCsv
                                          : Output::kTable;
      },
      help);
  OneOf(output, formats)->default_str("table");
}

void CommandLine::AllowYaml(CLI::App* command) {
  command->remove_option(command->get_option("--output"));
  AddOutput(command, {"table", "json", "yaml"},
            "what stdout is: table, json for programs, or yaml: a model file");
}

void CommandLine::AllowCsv(CLI::App* command) {
  command->remove_option(command->get_option("--output"));
  AddOutput(command, {"table", "json", "csv"},
            "what stdout is: table, json for programs, or csv: one value a line");
}

CLI::App* CommandLine::Add(const std::string& name, const std::string& description,
                           const Examples& examples, Action action) {
  return Add(&app_, name, description, examples, std::move(action));
}

CLI::App* CommandLine::Add(CLI::App* group, const std::string& name, const std::string& description,
                           const Examples& examples, Action action) {
  CLI::App* const command = group->add_subcommand(name, description);
  command->footer("Examples:\n  " + absl::StrJoin(examples.lines, "\n  "));
  AddCommonOptions(command);
  command->callback([this, action = std::move(action)] { chosen_ = action; });
  return command;
}

void CommandLine::RefuseCoordinator(CLI::App* command) {
  command->remove_option(command->get_option("--coordinator"));
}

void CommandLine::AddRest(CLI::App* command, std::vector<std::string>* words) {
  rests_.push_back({command, words});
}

int CommandLine::TakeRest(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv, argv + argc);
  const auto mark = std::ranges::find(words, "--");
  const auto place = [&](const Rest& each) {  // the command comes before what is called like one
    return std::find(words.begin(), mark, each.command->get_name());
  };
  const auto rest = std::ranges::min_element(rests_, {}, place);
  if (mark == words.end() || rest == rests_.end() || place(*rest) == mark) return argc;
  rest->words->assign(mark + 1, words.end());
  return static_cast<int>(mark - words.begin());
}

void CommandLine::KeepSecret(CLI::Option* option) { secrets_.push_back(option); }

CLI::App* CommandLine::AddGroup(const std::string& name, const std::string& description) {
  CLI::App* const group = app_.add_subcommand(name, description);
  group->require_subcommand(1);
  return group;
}

StatusOr<Action> CommandLine::Parse(int argc, const char* const* argv) {
  chosen_ = nullptr;
  RefuseSigns(&app_);
  try {
    app_.parse(TakeRest(argc, argv), argv);
  } catch (const CLI::CallForHelp&) {
    return Action([this]() -> StatusOr<ExitCode> {
      Print(Help(app_));
      return ExitCode::kOk;
    });
  } catch (const CLI::CallForVersion& version) {
    return Action([text = std::string(version.what())]() -> StatusOr<ExitCode> {
      Print(text + "\n");
      return ExitCode::kOk;
    });
  } catch (const CLI::ParseError& error) {
    return Complaint(app_, error.what());
  }
  const CLI::App* command = &app_;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  if (app_.count("--coordinator") > 0 && command->get_option_no_throw("--coordinator") == nullptr) {
    return Complaint(app_, command->get_name() +
                               " starts a coordinator of its own: leave --coordinator out; "
                               "`ringworker --coordinator` joins one");
  }
  return chosen_;
}

void CommandLine::BlankSecrets(int argc, char** argv) const {
  for (const CLI::Option* const option : secrets_) {
    for (const std::string& secret : option->results()) {
      for (int i = 1; i < argc; ++i) {
        if (argv[i] == secret) std::memset(argv[i], 'x', secret.size());
      }
    }
  }
}

namespace {

StatusOr<JobAnswer> AnswerOf(Client& client, const std::string& job, const AskJob& ask) {
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  return ask(client, job_id);
}

}  // namespace

StatusOr<ExitCode> AskEach(const Common& common, const std::vector<std::string>& jobs,
                           const AskJob& ask) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  ExitCode worst = ExitCode::kOk;
  Json list = Json::array();
  std::string text;
  for (const std::string& job : jobs) {
    const StatusOr<JobAnswer> answer = AnswerOf(client, job, ask);
    if (answer.ok()) {
      list.push_back(answer->json);
      text += (text.empty() || answer->text.empty() ? "" : "\n") + answer->text;
      continue;
    }
    if (jobs.size() == 1) return answer.status();
    Say(Message(answer.status()));
    worst = std::max(worst, ExitCodeOf(answer.status()));
    if (worst == ExitCode::kUnreachable) break;
  }
  if (common.json()) text = (jobs.size() == 1 ? list.front() : list).dump(2) + "\n";
  Print(text);
  return worst;
}

}  // namespace ringmaster::cli
