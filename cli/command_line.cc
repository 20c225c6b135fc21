#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "cli/nearest.h"

namespace ringmaster::cli {
namespace {

constexpr char kDefaultCoordinator[] = "127.0.0.1:7700";
constexpr char kFooter[] =
    "\nExit codes: 0 ok, 1 anything else, 2 usage or job file, 3 job failed, 4 job cancelled,\n"
    "5 coordinator unreachable, 124 timed out.";

std::string CoordinatorFromEnvironment() {
  const char* const value = std::getenv("RINGMASTER_COORDINATOR");
  return value == nullptr || *value == '\0' ? kDefaultCoordinator : value;
}

// The innermost command that was named.
const CLI::App* Deepest(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? &app : Deepest(*parsed.front());
}

// Of the innermost command that was named, with its whole name.
std::string HelpOf(const CLI::App& app, const std::string& before) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app.help(before)
                        : HelpOf(*parsed.front(),
                                 before.empty() ? app.get_name() : before + " " + app.get_name());
}

// What is wrong, in our words where a word stands that is no command.
std::string Complaint(const CLI::App& app, const std::string& error) {
  const std::vector<std::string> words = app.remaining(true);
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (names.empty() || words.empty() || words.front().empty() || words.front().front() == '-') {
    return error;
  }
  const std::string guess = Nearest(words.front(), names);
  return fmt::format("there is no command {}{}", words.front(),
                     guess.empty() ? "" : fmt::format("; did you mean {}?", guess));
}

// Reads `table` or `json`.
CLI::Validator OutputNames() {
  return CLI::Validator(
      [](std::string& text) {
        if (text != "table" && text != "json") return "expected table or json, got " + text;
        return std::string();
      },
      "");
}

}  // namespace

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Say(const std::string& message) { std::fprintf(stderr, "ringctl: %s\n", message.c_str()); }

CommandLine::CommandLine() : app_("Submits and watches training jobs of a Ringmaster cluster") {
  app_.name("ringctl");
  app_.require_subcommand(1);
  app_.footer(kFooter);
  common_.coordinator = CoordinatorFromEnvironment();
  AddCommonOptions(&app_);
}

void CommandLine::AddCommonOptions(CLI::App* app) {
  app->add_option("--coordinator", common_.coordinator,
                  "address of the coordinator; also RINGMASTER_COORDINATOR")
      ->type_name("HOST:PORT")
      ->default_str(common_.coordinator);
  app->add_option_function<std::string>(
         "-o,--output",
         [this](const std::string& name) {
           common_.output = name == "json" ? Output::kJson : Output::kTable;
         },
         "what stdout is: table, or json for programs")
      ->type_name("table|json")
      ->default_str("table")
      ->check(OutputNames());
}

CLI::App* CommandLine::Add(const std::string& name, const std::string& description, Action action) {
  return Add(&app_, name, description, std::move(action));
}

CLI::App* CommandLine::Add(CLI::App* group, const std::string& name, const std::string& description,
                           Action action) {
  CLI::App* const command = group->add_subcommand(name, description);
  AddCommonOptions(command);
  command->callback([this, action = std::move(action)] { chosen_ = action; });
  return command;
}

CLI::App* CommandLine::AddGroup(const std::string& name, const std::string& description) {
  CLI::App* const group = app_.add_subcommand(name, description);
  group->require_subcommand(1);
  return group;
}

StatusOr<Action> CommandLine::Parse(int argc, const char* const* argv) {
  chosen_ = nullptr;
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Action([this]() -> StatusOr<ExitCode> {
      Print(HelpOf(app_, ""));
      return ExitCode::kOk;
    });
  } catch (const CLI::ParseError& error) {
    const CLI::App* const command = Deepest(app_);
    return InvalidArgument("{}; see `{} --help`", Complaint(*command, error.what()),
                           command == &app_ ? "ringctl" : "ringctl " + command->get_name());
  }
  return chosen_;
}

}  // namespace ringmaster::cli
