// check_may_call FILE: whether every method in FILE, a FileDescriptorSet that protoc wrote, says
// who may call it (rules.proto, may_call). Run by every build; a method that does not ends it.
#include <google/protobuf/descriptor.pb.h>

#include <fstream>
#include <iostream>

#include "ringmaster/v1/rules.pb.h"

int main(int argc, char** argv) {
  google::protobuf::FileDescriptorSet files;
  std::ifstream stream(argc == 2 ? argv[1] : "", std::ios::binary);
  if (!files.ParseFromIstream(&stream)) {
    std::cerr << "usage: check_may_call FILE, which protoc --descriptor_set_out wrote\n";
    return 2;
  }
  int methods = 0, silent = 0;
  for (const google::protobuf::FileDescriptorProto& file : files.file()) {
    for (const google::protobuf::ServiceDescriptorProto& service : file.service()) {
      for (const google::protobuf::MethodDescriptorProto& method : service.method()) {
        ++methods;
        if (method.options().HasExtension(ringmaster::v1::may_call)) continue;
        ++silent;
        std::cerr << file.name() << ": " << service.name() << "." << method.name()
                  << " has no option (may_call): say who may call it, as rules.proto describes\n";
      }
    }
  }
  if (methods == 0) std::cerr << argv[1] << ": it has no method at all\n";
  return silent == 0 && methods > 0 ? 0 : 1;
}
