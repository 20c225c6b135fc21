#include <iostream>

#include "cli/commands/commands.h"
#include "cli/context.h"
#include "cli/show/json.h"
#include "cli/show/names.h"
#include "common/pki/authority.h"
#include "common/pki/token.h"
#include "common/text.h"

namespace ringmaster::cli {

// ringctl login TOKEN|- [--context NAME]: a certificate for a token.

namespace {

using SystemClock = std::chrono::system_clock;

constexpr std::chrono::seconds kJoinLimit(30);

struct LoginOptions {
  std::string token;
  std::string context;
};

int64_t ToUnixMs(pki::Time time) {
  return std::chrono::milliseconds(time.time_since_epoch()).count();
}

// What was typed, or stands on stdin's first line, is overwritten.
StatusOr<pki::JoinToken> TokenOf(std::string* text) {
  const bool from_stdin = *text == "-";
  std::string line;
  if (from_stdin) std::getline(std::cin, line);
  StatusOr<pki::JoinToken> token = pki::ParseToken(from_stdin ? line : *text);
  pki::Wipe(&line);
  pki::Wipe(text);
  return token;
}

// Before the token is used up. A name that nobody gave stands for the cluster that it stood for.
Status MayReplace(const Contexts& contexts, const std::string& name, const pki::JoinToken& token) {
  const auto there = contexts.Get(name);
  if (there.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
  const auto instead = [&name](const std::string& why) {
    return FailedPrecondition(
        "context {} stays as it is: {}; `--context NAME` makes another one, `--context {}` "
        "replaces it",
        name, why, name);
  };
  if (!there.ok()) return instead(Message(there.status()));
  const auto own = pki::LoadCredentials(there->credentials);
  if (own.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
  if (!own.ok()) return instead(Message(own.status()));
  for (const pki::Certificate& authority : own->authorities) {
    if (authority.KeyHash() == token.authority) return absl::OkStatus();
  }
  return instead(fmt::format("it is of another cluster ({}), or its authority is a new one",
                             own->identity.cluster));
}

StatusOr<pki::Issued> JoinAsUser(const pki::JoinToken& token, const pki::Key& key) {
  const pki::Time now = std::chrono::floor<std::chrono::seconds>(SystemClock::now());
  RING_ASSIGN_OR_RETURN(
      pki::Issued issued,
      pki::Join(token, "", key, now, std::chrono::steady_clock::now() + kJoinLimit));
  if (issued.identity.kind == pki::Kind::kUser) return issued;
  return FailedPrecondition(
      "this token is for {}, no person, and is used up; `ringworker --join` takes such a one, and "
      "`ringctl token create --role submitter --name NAME` makes one for a person",
      ToUri(issued.identity));
}

void SayWhoOneIs(const pki::Issued& issued, const Address& coordinator, const std::string& name) {
  const pki::Identity& identity = issued.identity;
  Say(
      fmt::format("you are {}/{} in cluster {}, until {}; the certificate is renewed while you "
                  "work",
                  NameOf(identity.kind), identity.name, identity.cluster,
                  DateAndTime(ToUnixMs(issued.certificate.not_after()))));
  const std::string where = coordinator.ToString();
  Say(fmt::format("context {} is the current one: commands go to {}", name, where));
  if (IsLoopback(coordinator.host)) {
    Say(
        fmt::format("connections to {} stay on this host and have no TLS: there you are whom the "
                    "system says",
                    where));
  }
  const char* const other = std::getenv("RINGMASTER_COORDINATOR");
  if (other != nullptr && *other != '\0' && other != where) {
    Say(fmt::format("RINGMASTER_COORDINATOR={} comes first, though", OneLine(other)));
  }
}

StatusOr<ExitCode> Login(const Common& common, LoginOptions& options) {
  RING_RETURN_IF_ERROR(pki::ForbidDumps());
  RING_ASSIGN_OR_RETURN(const pki::JoinToken token, TokenOf(&options.token));
  RING_ASSIGN_OR_RETURN(const Contexts contexts, Contexts::OfUser());
  const bool named = !options.context.empty();
  const std::string name = named ? options.context : ContextNameOf(token.coordinator);
  RING_RETURN_IF_ERROR(CheckContextName(name));
  if (!named) RING_RETURN_IF_ERROR(MayReplace(contexts, name, token));
  RING_ASSIGN_OR_RETURN(const pki::Key key, pki::Key::Generate());
  RING_ASSIGN_OR_RETURN(const pki::Issued issued, JoinAsUser(token, key));
  RING_RETURN_IF_ERROR(contexts.Put(name, token.coordinator, key, issued));
  if (common.json()) {
    const Json json = {{"context", name},
                       {"coordinator", token.coordinator.ToString()},
                       {"identity", ToUri(issued.identity)},
                       {"cluster", issued.identity.cluster},
                       {"name", issued.identity.name},
                       {"certificate_expires_unix_ms", ToUnixMs(issued.certificate.not_after())}};
    Print(json.dump(2) + "\n");
  }
  SayWhoOneIs(issued, token.coordinator, name);
  return ExitCode::kOk;
}

}  // namespace

void AddLogin(CommandLine& line) {
  const auto options = std::make_shared<LoginOptions>();
  CLI::App* const command =
      line.Add("login", "become known to a cluster, with a token of `ringctl token create`",
               Examples("ringctl login rm1/...", "ringctl login - < token",
                        "ringctl login rm1/... --context home"),
               [&line, options] { return Login(line.common(), *options); });
  line.KeepSecret(command->add_option("TOKEN", options->token, "the line; - reads it from stdin")
                      ->type_name("")
                      ->required());
  command
      ->add_option(
          "--context", options->context,
          "what to call it; default: the coordinator's host. One that is there is replaced")
      ->type_name("CONTEXT");
}

// ringctl logout [CONTEXT].

namespace {

StatusOr<ExitCode> Logout(const Common& common, std::string name) {
  RING_ASSIGN_OR_RETURN(const Contexts contexts, Contexts::OfUser());
  if (name.empty()) {
    RING_ASSIGN_OR_RETURN(name, contexts.CurrentName());
    if (name.empty()) {
      return FailedPrecondition("there is no current context; `ringctl context ls` lists all");
    }
  }
  RING_RETURN_IF_ERROR(contexts.Remove(name));
  if (common.json()) Print(Json{{"context", name}}.dump(2) + "\n");
  Say(fmt::format("context {} is gone, and its key with it", name));
  return ExitCode::kOk;
}

}  // namespace

void AddLogout(CommandLine& line) {
  const auto name = std::make_shared<std::string>();
  line.Add("logout", "forget a context and its key",
           Examples("ringctl logout", "ringctl logout home"),
           [&line, name] { return Logout(line.common(), *name); })
      ->add_option("CONTEXT", *name, "which; default: the current one");
}

// ringctl context ls, context use CONTEXT.

namespace {

Json JsonOfContext(const Context& context, bool current, const StatusOr<pki::Credentials>& own) {
  return {{"name", context.name},
          {"current", current},
          {"coordinator", context.coordinator.ToString()},
          {"identity", own.ok() ? Json(ToUri(own->identity)) : Json()},
          {"certificate_expires_unix_ms", own.ok() ? Json(ToUnixMs(own->not_after())) : Json()}};
}

StatusOr<ExitCode> ListContexts(const Common& common) {
  RING_ASSIGN_OR_RETURN(const Contexts contexts, Contexts::OfUser());
  RING_ASSIGN_OR_RETURN(const std::vector<Context> list, contexts.List());
  RING_ASSIGN_OR_RETURN(const std::string current, contexts.CurrentName());
  Json json = Json::array();
  Table table({"", "CONTEXT", "COORDINATOR", "IDENTITY", "CERTIFICATE UNTIL"});
  for (const Context& one : list) {
    const auto own = pki::LoadCredentials(one.credentials);
    if (!own.ok()) Say(fmt::format("context {}: {}", one.name, Message(own.status())));
    const bool over = own.ok() && own->not_after() < SystemClock::now();
    json.push_back(JsonOfContext(one, one.name == current, own));
    const std::string until = own.ok() ? DateAndTime(ToUnixMs(own->not_after())) : "-";
    table.Add({std::string(one.name == current ? "*" : ""), one.name, one.coordinator.ToString(),
               own.ok() ? ToUri(own->identity) : std::string("-"),
               Cell(until, over ? Colour::kRed : Colour::kPlain)});
  }
  Print(common.json() ? Json{{"contexts", json}}.dump(2) + "\n"
                      : table.Print(Terminal::Of(stdout)));
  return ExitCode::kOk;
}

StatusOr<ExitCode> UseContext(const Common& common, const std::string& name) {
  RING_ASSIGN_OR_RETURN(const Contexts contexts, Contexts::OfUser());
  RING_RETURN_IF_ERROR(contexts.Use(name));
  if (common.json()) Print(Json{{"context", name}}.dump(2) + "\n");
  return ExitCode::kOk;
}

}  // namespace

void AddContext(CommandLine& line) {
  CLI::App* const group = line.AddGroup("context", "where you are logged in");
  line.Add(group, "ls", "list contexts; * is the current one", Examples("ringctl context ls"),
           [&line] { return ListContexts(line.common()); });
  const auto name = std::make_shared<std::string>();
  line.Add(group, "use", "make a context the current one, whose coordinator commands go to",
           Examples("ringctl context use home"),
           [&line, name] { return UseContext(line.common(), *name); })
      ->add_option("CONTEXT", *name, "name of the context")
      ->required();
}

}  // namespace ringmaster::cli
