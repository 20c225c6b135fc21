// Who may call what, said a second time: an option of a method that changes, or a new method, fails
// here until the change was meant.
#include "coordinator/access/permissions.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.pb.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <vector>

namespace ringmaster::coordinator {
namespace {

// Viewer, submitter, admin, worker: x any, o their own, - none.
const std::map<std::string, std::string>& Expected() {
  static const std::map<std::string, std::string> kExpected = {
      {"/ringmaster.v1.Access/CreateToken", "--x-"},
      {"/ringmaster.v1.Access/ListAudit", "--x-"},
      {"/ringmaster.v1.Access/ListAuthorities", "--x-"},
      {"/ringmaster.v1.Access/ListIdentities", "--x-"},
      {"/ringmaster.v1.Access/ListTokens", "--x-"},
      {"/ringmaster.v1.Access/Renew", "xxxx"},
      {"/ringmaster.v1.Access/RevokeIdentity", "--x-"},
      {"/ringmaster.v1.Access/RevokeToken", "--x-"},
      {"/ringmaster.v1.Access/RotateAuthority", "--x-"},
      {"/ringmaster.v1.Access/WhoAmI", "xxxx"},
      {"/ringmaster.v1.Bench/AllReduce", "--x-"},
      {"/ringmaster.v1.DataFiles/List", "---o"},
      {"/ringmaster.v1.DataFiles/Read", "---o"},
      {"/ringmaster.v1.Fleet/Session", "---o"},
      {"/ringmaster.v1.Fleet/ShipLogs", "---o"},
      {"/ringmaster.v1.Fleet/UploadCheckpoint", "---o"},
      {"/ringmaster.v1.Jobs/Cancel", "-ox-"},
      {"/ringmaster.v1.Jobs/DrainWorker", "--x-"},
      {"/ringmaster.v1.Jobs/Get", "xxx-"},
      {"/ringmaster.v1.Jobs/GetCheckpoint", "-oxo"},
      {"/ringmaster.v1.Jobs/GetGraph", "xxx-"},
      {"/ringmaster.v1.Jobs/GetMetrics", "xxx-"},
      {"/ringmaster.v1.Jobs/List", "xxx-"},
      {"/ringmaster.v1.Jobs/ListCheckpoints", "xxx-"},
      {"/ringmaster.v1.Jobs/ListEvents", "xxx-"},
      {"/ringmaster.v1.Jobs/ListWorkers", "xxx-"},
      {"/ringmaster.v1.Jobs/Logs", "xxx-"},
      {"/ringmaster.v1.Jobs/Remove", "-ox-"},
      {"/ringmaster.v1.Jobs/Submit", "-xx-"},
      {"/ringmaster.v1.Jobs/VerifyCheckpoints", "-ox-"},
      {"/ringmaster.v1.Jobs/Watch", "xxx-"},
      {"/ringmaster.v1.Jobs/Why", "xxx-"},
      {"/ringmaster.v1.Ring/Link", "---o"},
      {"/ringmaster.v1.Ring/Pulse", "---o"},
      {"/ringmaster.v1.States/Fetch", "---o"},
  };
  return kExpected;
}

std::string RowOf(const std::string& path) {
  std::string row;
  for (const v1::Role role :
       {v1::ROLE_VIEWER, v1::ROLE_SUBMITTER, v1::ROLE_ADMIN, v1::ROLE_WORKER}) {
    const v1::Scope scope = ScopeOf(path, role);
    row += scope == v1::SCOPE_ANY ? 'x' : scope == v1::SCOPE_OWN ? 'o' : '-';
  }
  return row;
}

// Of every service in the protos, also those that permissions.cc would forget.
std::vector<std::string> AllPaths() {
  google::protobuf::FileDescriptorSet files;
  std::ifstream stream(RINGMASTER_DESCRIPTORS, std::ios::binary);
  REQUIRE(files.ParseFromIstream(&stream));
  std::vector<std::string> paths;
  for (const google::protobuf::FileDescriptorProto& file : files.file()) {
    for (const google::protobuf::ServiceDescriptorProto& service : file.service()) {
      for (const google::protobuf::MethodDescriptorProto& method : service.method()) {
        paths.push_back(fmt::format("/{}.{}/{}", file.package(), service.name(), method.name()));
      }
    }
  }
  return paths;
}

TEST_CASE("Permissions: every role at every method is as this table says") {
  std::map<std::string, std::string> found;
  for (const std::string& path : AllPaths()) found[path] = RowOf(path);
  CHECK(found == Expected());
}

TEST_CASE("Permissions: gRPC's own services, and what nobody knows") {
  CHECK(RowOf("/grpc.health.v1.Health/Check") == "xxxx");
  CHECK(RowOf("/grpc.health.v1.Health/Watch") == "--x-");
  CHECK(RowOf("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo") == "--x-");
  for (const char* path : {"", "/", "/ringmaster.v1.Jobs/", "/ringmaster.v1.Jobs/list",
                           "ringmaster.v1.Jobs/List", "/ringmaster.v1.Jobs/List/",
                           "/ringmaster.v2.Jobs/List", "/grpc.channelz.v1.Channelz/GetServers"}) {
    INFO(path);
    CHECK(RowOf(path) == "----");
  }
}

TEST_CASE("Permissions: no role may call nothing") {
  for (const std::string& path : AllPaths()) {
    CHECK(ScopeOf(path, v1::ROLE_UNSPECIFIED) == v1::SCOPE_NONE);
    CHECK(ScopeOf(path, static_cast<v1::Role>(99)) == v1::SCOPE_NONE);
  }
}

TEST_CASE("Permissions: who may, in words") {
  CHECK(WhoMayCall("/ringmaster.v1.Jobs/Cancel") == "submitter or admin");
  CHECK(WhoMayCall("/ringmaster.v1.Fleet/Session") == "worker");
  CHECK(WhoMayCall("/nothing") == "nobody");
  CHECK(RoleName(v1::ROLE_UNSPECIFIED) == "nobody");
}

}  // namespace
}  // namespace ringmaster::coordinator
