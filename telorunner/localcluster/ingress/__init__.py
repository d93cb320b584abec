"""The local cluster's own ingress: requests from outside reach pods by host and path.

It routes Ingresses of the class `telorunner-local`, and HTTPRoutes of Gateways of that class, and
writes their status as a controller of a real cluster would. It listens on loopback only.
"""
