"""Every door of the service against every kind of person: the scene, the doors, and who may pass, worked out independently."""
