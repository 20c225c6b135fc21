#include "coordinator/access/permissions.h"

#include <absl/strings/str_join.h>
#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <unordered_map>
#include <vector>

#include "ringmaster/v1/bench.pb.h"
#include "ringmaster/v1/data.pb.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/jobs.pb.h"
#include "ringmaster/v1/ring.pb.h"
#include "ringmaster/v1/states.pb.h"

namespace ringmaster::coordinator {
namespace {

using Table = std::unordered_map<std::string, v1::MayCall>;

v1::MayCall Everybody() {
  v1::MayCall may_call;
  may_call.set_viewer(v1::SCOPE_ANY);
  may_call.set_submitter(v1::SCOPE_ANY);
  may_call.set_admin(v1::SCOPE_ANY);
  may_call.set_worker(v1::SCOPE_ANY);
  return may_call;
}

v1::MayCall AdminAlone() {
  v1::MayCall may_call;
  may_call.set_admin(v1::SCOPE_ANY);
  return may_call;
}

void AddServices(const google::protobuf::FileDescriptor& file, Table* table) {
  for (int i = 0; i < file.service_count(); ++i) {
    const google::protobuf::ServiceDescriptor& service = *file.service(i);
    for (int j = 0; j < service.method_count(); ++j) {
      const google::protobuf::MethodDescriptor& method = *service.method(j);
      table->emplace(fmt::format("/{}/{}", service.full_name(), method.name()),
                     method.options().GetExtension(v1::may_call));
    }
  }
}

// A message of each file names it, so that the linker keeps them all.
Table ReadTable() {
  Table table;
  for (const google::protobuf::Descriptor* message :
       {v1::WhoAmIRequest::descriptor(), v1::AllReduceRequest::descriptor(),
        v1::ListFilesRequest::descriptor(), v1::WorkerMessage::descriptor(),
        v1::SubmitRequest::descriptor(), v1::Beat::descriptor(), v1::FetchRequest::descriptor()}) {
    AddServices(*message->file(), &table);
  }
  table.emplace("/grpc.health.v1.Health/Check", Everybody());
  // It lasts, and OpenCalls does not see it.
  table.emplace("/grpc.health.v1.Health/Watch", AdminAlone());
  table.emplace("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", AdminAlone());
  return table;
}

const v1::MayCall& MayCallOf(const std::string& path) {
  static const Table kTable = ReadTable();
  const auto found = kTable.find(path);
  return found == kTable.end() ? v1::MayCall::default_instance() : found->second;
}

}  // namespace

v1::Scope ScopeOf(const std::string& path, v1::Role role) {
  const v1::MayCall& may_call = MayCallOf(path);
  switch (role) {
    case v1::ROLE_VIEWER:
      return may_call.viewer();
    case v1::ROLE_SUBMITTER:
      return may_call.submitter();
    case v1::ROLE_ADMIN:
      return may_call.admin();
    case v1::ROLE_WORKER:
      return may_call.worker();
    default:
      return v1::SCOPE_NONE;
  }
}

std::string WhoMayCall(const std::string& path) {
  std::vector<std::string> roles;
  for (const v1::Role role :
       {v1::ROLE_VIEWER, v1::ROLE_SUBMITTER, v1::ROLE_ADMIN, v1::ROLE_WORKER}) {
    if (ScopeOf(path, role) != v1::SCOPE_NONE) roles.push_back(RoleName(role));
  }
  return roles.empty() ? "nobody" : absl::StrJoin(roles, " or ");
}

std::string RoleName(v1::Role role) {
  switch (role) {
    case v1::ROLE_VIEWER:
      return "viewer";
    case v1::ROLE_SUBMITTER:
      return "submitter";
    case v1::ROLE_ADMIN:
      return "admin";
    case v1::ROLE_WORKER:
      return "worker";
    default:
      return "nobody";
  }
}

}  // namespace ringmaster::coordinator
